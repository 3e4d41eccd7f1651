/* What libzmq's own configure would find on Linux, with glibc and with musl; libzmq includes it by this name.
 *
 * accept4, epoll_create1 and eventfd2 are calls that Android allows apps. */
#pragma once

#define ZMQ_HAVE_LINUX 1
#define ZMQ_HAVE_CURVE 1
#define ZMQ_USE_LIBSODIUM 1

#define ZMQ_IOTHREAD_POLLER_USE_EPOLL 1
#define ZMQ_IOTHREAD_POLLER_USE_EPOLL_CLOEXEC 1
#define ZMQ_POLL_BASED_ON_POLL 1
#define ZMQ_USE_CV_IMPL_STL11 1
#define ZMQ_HAVE_ATOMIC_INTRINSICS 1
#define ZMQ_CACHELINE_SIZE 64

#define ZMQ_HAVE_EVENTFD 1
#define ZMQ_HAVE_EVENTFD_CLOEXEC 1
#define ZMQ_HAVE_IFADDRS 1
#define ZMQ_HAVE_O_CLOEXEC 1
#define ZMQ_HAVE_PTHREAD_SETNAME_2 1
#define ZMQ_HAVE_SOCK_CLOEXEC 1
#define ZMQ_HAVE_SO_BINDTODEVICE 1
#define ZMQ_HAVE_SO_KEEPALIVE 1
#define ZMQ_HAVE_SO_PRIORITY 1
#define ZMQ_HAVE_TCP_KEEPCNT 1
#define ZMQ_HAVE_TCP_KEEPIDLE 1
#define ZMQ_HAVE_TCP_KEEPINTVL 1
#define ZMQ_HAVE_UIO 1

#define HAVE_ACCEPT4 1
#define HAVE_CLOCK_GETTIME 1
#define HAVE_FORK 1
#define HAVE_IF_NAMETOINDEX 1
#define HAVE_MKDTEMP 1
#define HAVE_POSIX_MEMALIGN 1
#define HAVE_STRNLEN 1
