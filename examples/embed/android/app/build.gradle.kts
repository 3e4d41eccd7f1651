plugins {
    id("com.android.application") version "8.7.0"
    id("org.jetbrains.kotlin.android") version "2.0.21"
}

android {
    namespace = "dev.partc.runner"
    compileSdk = 35
    defaultConfig {
        applicationId = "dev.partc.runner"
        minSdk = 26
        targetSdk = 35
        ndk { abiFilters += "arm64-v8a" }
    }
    // Unpacked when it is installed: a program inside the package cannot be started.
    packaging { jniLibs { useLegacyPackaging = true } }
}
