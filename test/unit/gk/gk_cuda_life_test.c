/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lifetime of CUDA gangs: a process that is stopped, one that is killed with frames in flight, and
 * the next one immediately after it. Each is a child process that runs this program with the name
 * of its task, because CUDA does not survive fork().
 *
 * Skipped without a GPU.
 */

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gk_cuda_rig.h"

static const struct gk_geometry geometry = {128, 4, 1024};

/* Longer than a loaded machine takes for a batch or for ending a process. */
#define SOON_S	    20
#define WATCHDOG_MS 400

static void
tune(struct gk_config *c)
{
	c->watchdog_ms = WATCHDOG_MS;
}

static void
open_gangs(struct pair *p)
{
	uint64_t rng = 1;

	rig_chunks = 1;
	pair_open(p, &geometry, GK_VALUE_F32, 1000, 2, 16, 0, 0, tune);
	rig_random_coef(&p->host, &rng);
	pair_coef(p);
	for (uint32_t i = 0; i < 16; i++) {
		rig_random_frame(&p->host, i, 0, &rng);
		rig_frame(&p->host, i)->out = i;
		pair_frame(p, i);
	}
	for (uint32_t i = 0; i < 2; i++) {
		const struct gk_params params = {.strong_max = UINT32_MAX,
			.kind = i == 0 ? GK_KIND_CSR : GK_KIND_RAW,
			.chunks = 1u << GK_KIND_RAW};

		p->host.config.channel->params[i] = params;
		p->cuda.config.channel->params[i] = params;
	}
	pair_start(p);
}

/* Lists, then chunks in one pass with the count. */
static void
work_once(struct pair *p)
{
	struct gk_work work = {.nb_frames = 8};

	for (; work.params < 2; work.params++) {
		for (uint32_t gang = 0; gang < 2; gang++) {
			for (uint32_t i = 0; i < 8; i++)
				work.slot[i] = gang * 8 + i;
			pair_submit(p, gang, &work);
		}
		pair_drain(p);
		pair_compare(p);
	}
}

/*
 * Processes frames; is stopped by SIGSTOP; its kernel has ended by itself when it continues;
 * processes frames again.
 */
static void
child_silent(void **state)
{
	struct pair p;

	open_gangs(&p);
	work_once(&p);
	raise(SIGSTOP);
	assert_int_equal(gk_ring_error(&p.cuda.ring[0]), -ETIMEDOUT);
	assert_int_equal(gk_ring_error(&p.cuda.ring[1]), -ETIMEDOUT);
	assert_int_equal(pair_stop_rig(&p.cuda), -ETIMEDOUT);
	assert_int_equal(p.cuda.ops->start(p.cuda.gk), 0);
	work_once(&p);
	pair_stop(&p);
	pair_close(&p);
}

/* Processes frames until it is killed. */
static void
child_busy(void **state)
{
	struct pair p;
	int told = 0;

	open_gangs(&p);
	for (;;) {
		for (uint32_t gang = 0; gang < 2; gang++) {
			struct gk_ring *ring = &p.cuda.ring[gang];
			struct gk_work *w = gk_ring_next(ring);

			if (w != NULL) {
				*w = (struct gk_work){
					.nb_frames = 8, .params = ring->done_tail / 2 % 2};
				for (uint32_t i = 0; i < 8; i++)
					w->slot[i] = gang * 8 + i;
				gk_ring_submit(ring);
			}
			while (gk_ring_pending(ring) > 0 && gk_ring_is_done(ring, ring->done_tail))
				gk_ring_collect(ring);
		}
		if (!told && p.cuda.ring[1].done_tail > 100) {
			told = 1;
			raise(SIGSTOP); /* tells the parent that it is working */
		}
	}
}

static void
child_works(void **state)
{
	struct pair p;

	open_gangs(&p);
	work_once(&p);
	pair_stop(&p);
	pair_close(&p);
}

static pid_t
run(const char *what)
{
	const pid_t child = fork();

	assert_true(child >= 0);
	if (child == 0) {
		execl("/proc/self/exe", "gk_cuda_life_test", what, (char *)NULL);
		_exit(127);
	}
	return child;
}

static int
wait_for(pid_t child)
{
	int status;

	alarm(60); /* limit; nothing here takes as long */
	assert_int_equal(waitpid(child, &status, WUNTRACED), child);
	return status;
}

static void
test_silent(void **state)
{
	const pid_t child = run("silent");
	int status = wait_for(child);

	assert_true(WIFSTOPPED(status));
	usleep(1000 * 1000 + WATCHDOG_MS * 1000);
	kill(child, SIGCONT);
	status = wait_for(child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void
test_killed(void **state)
{
	for (int round = 0; round < 3; round++) {
		const pid_t child = run("busy");
		int status = wait_for(child);
		double start;

		assert_true(WIFSTOPPED(status));
		kill(child, SIGCONT);
		usleep(20000);
		start = pair_seconds();
		kill(child, SIGKILL);
		status = wait_for(child);
		assert_true(WIFSIGNALED(status));
		/* the GPU is free: the next process can use all of it */
		status = wait_for(run("works"));
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), 0);
		print_message("killed; the next process was through %.2f s later\n",
			pair_seconds() - start);
		assert_true(pair_seconds() - start < SOON_S);
	}
}

int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_silent),
		cmocka_unit_test(test_killed),
	};
	const struct CMUnitTest silent[] = {cmocka_unit_test(child_silent)};
	const struct CMUnitTest busy[] = {cmocka_unit_test(child_busy)};
	const struct CMUnitTest works[] = {cmocka_unit_test(child_works)};
	const pid_t probe = argc > 1 ? 0 : fork();
	int status = 0;

	if (probe == 0) { /* only children may use CUDA */
		if (pair_driver() == NULL)
			return 77;
		if (argc == 1)
			return 0;
	} else {
		waitpid(probe, &status, 0);
		if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
			return 77;
		return cmocka_run_group_tests_name("gk_cuda_life", tests, NULL, NULL);
	}
	if (strcmp(argv[1], "silent") == 0)
		return cmocka_run_group_tests_name("silent", silent, NULL, NULL);
	if (strcmp(argv[1], "busy") == 0)
		return cmocka_run_group_tests_name("busy", busy, NULL, NULL);
	return cmocka_run_group_tests_name("works", works, NULL, NULL);
}
