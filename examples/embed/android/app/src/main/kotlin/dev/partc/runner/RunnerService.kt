package dev.partc.runner

import android.app.Notification
import android.app.NotificationChannel
import android.app.NotificationManager
import android.app.Service
import android.content.Intent
import android.net.wifi.WifiManager
import android.os.IBinder
import android.os.PowerManager
import android.system.Os
import android.util.Log
import java.io.File
import kotlin.concurrent.thread

private const val TAG = "partc"
private const val DEVICE = "phone"
private const val AGAIN_MS = 1_000L

/** One device of a ring: `partc-runner` as a child process, as long as the service lives. */
class RunnerService : Service() {
    private val wake by lazy {
        getSystemService(PowerManager::class.java).newWakeLock(PowerManager.PARTIAL_WAKE_LOCK, "partc:runner")
    }
    private val wifi by lazy {
        applicationContext.getSystemService(WifiManager::class.java)
            .createWifiLock(WifiManager.WIFI_MODE_FULL_LOW_LATENCY, "partc:runner")
    }

    @Volatile private var process: Process? = null
    @Volatile private var isStopped = false

    override fun onBind(intent: Intent?): IBinder? = null

    override fun onCreate() {
        super.onCreate()
        startForeground(1, notification())
        wake.acquire()
        wifi.acquire()
        thread(name = "runner") { keep() }
    }

    override fun onStartCommand(intent: Intent?, flags: Int, id: Int): Int = START_STICKY

    override fun onDestroy() {
        isStopped = true
        process?.destroy()
        wifi.release()
        wake.release()
        super.onDestroy()
    }

    /** Starts the runner, and again when it ends: it joins its ring by itself. */
    private fun keep() {
        val bundle = File(filesDir, DEVICE)
        close(bundle)
        while (!isStopped) {
            val runner = File(applicationInfo.nativeLibraryDir, "libpartc_runner.so").path
            val started = ProcessBuilder(runner, "--bundle", bundle.path, "--listen", "0.0.0.0:5555", "--frugal")
                .redirectErrorStream(true)
                .start()
            process = started
            started.inputStream.bufferedReader().forEachLine { Log.i(TAG, it) }
            Log.i(TAG, "ended with ${started.waitFor()}")
            Thread.sleep(AGAIN_MS)
        }
    }

    /** A runner refuses keys that others can read. */
    private fun close(bundle: File) = File(bundle, "keys").walk().forEach {
        Os.chmod(it.path, if (it.isDirectory) 0x1C0 else 0x180) // 0700, 0600
    }

    private fun notification(): Notification {
        val channel = NotificationChannel(TAG, "partc", NotificationManager.IMPORTANCE_LOW)
        getSystemService(NotificationManager::class.java).createNotificationChannel(channel)
        return Notification.Builder(this, TAG)
            .setContentTitle("partc")
            .setContentText("computes for its ring")
            .setSmallIcon(android.R.drawable.stat_notify_sync)
            .build()
    }
}
