/* The least a poller does: opens every file named on standard input once, then preads them all, N times over, with a pause
 * of so many milliseconds before each round (0: a tight loop, whose caches are warm).
 * Prints the CPU time of the best round in nanoseconds, the number of files, a sum, and the mean of the rounds. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static long long cpu_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

int main(int argc, char **argv)
{
	static int fds[65536];
	char line[4096], text[64];
	int n = 0, rounds = argc > 1 ? atoi(argv[1]) : 100;
	unsigned long long sum = 0;
	int pause_ms = argc > 2 ? atoi(argv[2]) : 0;
	struct timespec pause = { pause_ms / 1000, pause_ms % 1000 * 1000000L };
	long long best = -1, all = 0;
	while (n < 65536 && fgets(line, sizeof line, stdin)) {
		line[strcspn(line, "\n")] = 0;
		if ((fds[n] = open(line, O_RDONLY)) < 0) {
			perror(line);
			return 1;
		}
		n++;
	}
	for (int round = 0; round < rounds; round++) {
		if (pause_ms)
			nanosleep(&pause, NULL);
		long long start = cpu_ns();
		for (int i = 0; i < n; i++) {
			ssize_t got = pread(fds[i], text, sizeof text - 1, 0);
			if (got < 0)
				return 1;
			text[got] = 0;
			sum += strtoull(text, NULL, 10);
		}
		long long took = cpu_ns() - start;
		all += took;
		if (best < 0 || took < best)
			best = took;
	}
	printf("%lld %d %llu %lld\n", best, n, sum, rounds ? all / rounds : 0);
	return 0;
}
