package dev.partc.runner

import android.app.Activity
import android.content.Intent
import android.os.Bundle

/** Starts the service and closes: a foreground service may be started from what the user sees alone. */
class StartActivity : Activity() {
    override fun onCreate(state: Bundle?) {
        super.onCreate(state)
        startForegroundService(Intent(this, RunnerService::class.java))
        finish()
    }
}
