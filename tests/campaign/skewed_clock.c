/* Shifts the wall clock of the process that it is loaded into (LD_PRELOAD) by $MAKEWAY_CLOCK_OFFSET_MS.
 * The monotonic clock stays. Go programs ask the kernel themselves and are not reached. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long long offset_ns(void) {
    const char *text = getenv("MAKEWAY_CLOCK_OFFSET_MS");
    return text ? atoll(text) * 1000000LL : 0;
}

int clock_gettime(clockid_t id, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, id, now);
    if (!failed && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
        long long shifted = now->tv_sec * 1000000000LL + now->tv_nsec + offset_ns();
        now->tv_sec = shifted / 1000000000LL;
        now->tv_nsec = shifted % 1000000000LL;
    }
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec shifted;
    int failed = clock_gettime(CLOCK_REALTIME, &shifted);
    (void)zone;
    now->tv_sec = shifted.tv_sec;
    now->tv_usec = shifted.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *out) {
    struct timespec shifted;
    clock_gettime(CLOCK_REALTIME, &shifted);
    if (out) *out = shifted.tv_sec;
    return shifted.tv_sec;
}
