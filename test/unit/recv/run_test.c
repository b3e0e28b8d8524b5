/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests runs of a real pipeline. The test polls its roles, and places the packets itself. */

#include <errno.h>
#include <ftw.h>
#include <unistd.h>

#include "frame_rig.h"

#include "run.c"

#include <rte_bus_vdev.h>

#include "port/placement.h"
#include "port/port.h"

static char directory[] = "/tmp/run_test_XXXXXX";
static char path[sizeof(directory) + 16];
static struct config_source source;
static struct config *config;
static struct egress_settings egress;
static struct settings settings;
static struct pipeline p;
static struct run *r;
static uint32_t ledgers_kept;

void __real_run_ledger_keep(struct run_ledger *a, const struct batch_writer *writer, bool running);
void __wrap_run_ledger_keep(struct run_ledger *a, const struct batch_writer *writer, bool running);

void
__wrap_run_ledger_keep(struct run_ledger *a, const struct batch_writer *writer, bool running)
{
	ledgers_kept++;
	__real_run_ledger_keep(a, writer, running);
}

/** A disk on which recovery, or the end of a run, takes as long as the test wants. */
static bool disk_waits; /* atomic */

/** Wait for the disk, or until `stop` is set. With a fault, the test fails instead of hanging. */
static void
wait_for_disk(const bool *stop)
{
	for (int ms = 0; ms < 5000 && __atomic_load_n(&disk_waits, __ATOMIC_ACQUIRE); ms++) {
		if (stop != NULL && __atomic_load_n(stop, __ATOMIC_RELAXED))
			return;
		usleep(1000);
	}
}

int __wrap_arrow_recover_dir_until(const struct arrow_io_ops *io, const char *dir, const bool *stop,
	arrow_recovery_report report, void *arg);

int
__wrap_arrow_recover_dir_until(const struct arrow_io_ops *io, const char *dir, const bool *stop,
	arrow_recovery_report report, void *arg)
{
	wait_for_disk(stop);
	return 0;
}

int __real_batch_writer_stop(struct batch_writer *w, bool drain);
int __wrap_batch_writer_stop(struct batch_writer *w, bool drain);

int
__wrap_batch_writer_stop(struct batch_writer *w, bool drain)
{
	wait_for_disk(NULL);
	return __real_batch_writer_stop(w, drain);
}

static struct ledger_kept dead; /**< ledger that a killed receiver left; version 0: none */
static uint32_t resolved;	/**< calls of realpath() */
static uint32_t ledgers_of_dead;

char *__real_realpath(const char *name, char *resolved_name);
char *__wrap_realpath(const char *name, char *resolved_name);

char *
__wrap_realpath(const char *name, char *resolved_name)
{
	__atomic_fetch_add(&resolved, 1, __ATOMIC_RELAXED);
	wait_for_disk(NULL);
	return __real_realpath(name, resolved_name);
}

int __real_ledger_write(const struct ledger *l, const struct ledger_receiver *receiver,
	const struct ledger_veto *vetoes, uint32_t nb_vetoes, const char *in, const char *name,
	char file[PATH_MAX]);
int __wrap_ledger_write(const struct ledger *l, const struct ledger_receiver *receiver,
	const struct ledger_veto *vetoes, uint32_t nb_vetoes, const char *in, const char *name,
	char file[PATH_MAX]);

int
__wrap_ledger_write(const struct ledger *l, const struct ledger_receiver *receiver,
	const struct ledger_veto *vetoes, uint32_t nb_vetoes, const char *in, const char *name,
	char file[PATH_MAX])
{
	ledgers_of_dead += receiver->died;
	wait_for_disk(NULL);
	return __real_ledger_write(l, receiver, vetoes, nb_vetoes, in, name, file);
}

bool __wrap_egress_ledger_before(const struct egress *e, struct ledger_kept *kept, uint64_t *held);

bool
__wrap_egress_ledger_before(const struct egress *e, struct ledger_kept *kept, uint64_t *held)
{
	*kept = dead;
	*held = 0;
	return dead.version != 0;
}

static struct ledger_kept last_kept; /**< the last ledger that was saved */

bool __wrap_egress_keep_ledger(struct egress *e, const struct ledger_kept *saved);

bool
__wrap_egress_keep_ledger(struct egress *e, const struct ledger_kept *saved)
{
	last_kept = *saved;
	return true;
}

/** Write the configuration file, with `more` at its end. */
static void
write_config(const char *more)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fprintf(f,
		"[detector]\nmodules = 1\n"
		"[port 0]\ndevice = net_null0\ndescriptors = 64\n"
		"[frames]\nslots = 8\nmax_skew_frames = 2\nstream_timeout_ms = 50\n"
		"resync_packets = 1024\n"
		"[gpu]\nkernel = host\noutputs = 8\nbatch = 4\n"
		"[output]\ndirectory = %s\npreview = off\ncalibration = no\n%s",
		directory, more);
	assert_int_equal(fclose(f), 0);
}

static int
setup(void **state)
{
	struct placement way;
	cpu_set_t cpus;

	give_up = false;
	write_config("");
	source = (struct config_source){.file = path};
	config = config_open(&source);
	assert_non_null(config);
	assert_int_equal(settings_read(&settings, &egress, config), 0);
	assert_int_equal(placement_choose(&way, &settings), 0);
	assert_int_equal(sched_getaffinity(0, sizeof(cpus), &cpus), 0);
	r = run_create(&p, &settings, &source, false);
	assert_non_null(r);
	assert_int_equal(rte_vdev_init("net_null0", "no-rx=1"), 0);
	return pipeline_create(&p, &settings, &way, &cpus);
}

static int
teardown(void **state)
{
	run_destroy(r);
	assert_int_equal(pipeline_destroy(&p), 0);
	assert_int_equal(rte_vdev_uninit("net_null0"), 0);
	config_close(config);
	return 0;
}

/** Poll all roles and the service once. */
static void
poll(void)
{
	for (uint32_t i = 0; i < settings.rx_lcores; i++)
		rx_poll(p.rx[i]);
	builder_poll(p.builder);
	for (uint32_t g = 0; g < settings.gangs; g++)
		p.gk_ops->poll(p.gk, g, 0);
	run_tick(r);
}

/** Stop the run as a client does. */
static void
stop_run(void)
{
	assert_int_equal(run_stop(r), 0);
	for (int ms = 0; ms < 10000 && run_get_state(r) != RUN_IDLE; ms++) {
		poll();
		usleep(1000);
	}
	assert_int_equal(run_get_state(r), RUN_IDLE);
}

/** Place one packet of each frame; the others are lost. */
static void
send_frames(uint64_t from, uint64_t to)
{
	uint8_t header[RIG_HEADER_BYTES];

	for (int ms = 0; ms < 10000 && p.table->window.state != FRAME_WINDOW_OPEN; ms++)
		poll();
	for (uint64_t f = from; f < to; f++) {
		struct rte_mbuf *m = rte_pktmbuf_alloc(p.ports[0].payload_pool);

		assert_non_null(m);
		rig_header(header, f, 5);
		assert_int_equal(frame_rx_place(p.table, p.rx[0]->frx, 0, f, 5, header,
					 (uintptr_t)m->buf_addr, m),
			FRAME_PLACED);
		p.rx[0]->counters[RX_PACKETS]++;
		p.rx[0]->counters[RX_PLACED]++;
		p.rx[0]->counted = true;
		poll();
	}
}

/* The log names the object of an error, in addition to the errno. */
static void
why_a_gang_gave_up(void **state)
{
	struct gk_channel *channel = p.gk_config->channel;
	const uint32_t next = channel->done[0].done % GK_RING_SIZE;
	const struct gk_work kept = channel->work[0][next];
	char why[256];

	channel->work[0][next] = (struct gk_work){.nb_frames = 17};
	pipeline_why_gang(&p, 0, -EINVAL, why, sizeof(why));
	assert_string_equal(why, "work.nb_frames is 17, expected 1 to 16");
	pipeline_why_gang(&p, 0, -ETIMEDOUT, why, sizeof(why));
	assert_string_equal(why, "process did not run for [gpu] watchdog_ms = 10000");
	pipeline_why_gang(&p, 0, -EIO, why, sizeof(why));
	assert_string_equal(why, strerror(EIO));
	channel->work[0][next] = kept;
}

/* A watchdog time that is too short is refused. */
static void
watchdog_has_a_minimum(void **state)
{
	static const struct {
		const char *set;
		int ret;
	} cases[] = {{"gpu.watchdog_ms=99", -EINVAL}, {"gpu.watchdog_ms=100", 0},
		{"gpu.watchdog_ms=0", -EINVAL}, {"gpu.watchdog_ms=none", 0}};

	for (uint32_t i = 0; i < RTE_DIM(cases); i++) {
		struct config_source with = {.file = path};
		static struct egress_settings read_egress;
		static struct settings read;
		struct config *c;

		assert_int_equal(config_source_set(&with, cases[i].set), 0);
		c = config_open(&with);
		assert_non_null(c);
		assert_int_equal(settings_read(&read, &read_egress, c), cases[i].ret);
		config_close(c);
	}
}

/* resync_packets is limited to the number of packets that a stream sends for a frame. */
static void
agreement_is_possible(void **state)
{
	assert_int_equal(settings.resync_packets, 1024);
	assert_int_equal(p.table->config.resync_packets, 128);
}

/*
 * The receiver id is in every batch, and stores get it once, when the connection is made: with
 * stores it cannot be changed.
 */
static void
receiver_id_is_fixed_with_stores(void **state)
{
	int ret;

	assert_int_equal(run_configure(r, "output.receiver_id=7"), 0);
	assert_true(r->settings.receiver_id == 7);
	/* not used before a run is armed */
	p.stores = (struct egress *)&p;
	ret = run_configure(r, "output.receiver_id=8");
	p.stores = NULL;
	assert_int_equal(ret, -EINVAL);
	assert_string_equal(
		r->message, "output.receiver_id cannot change while stores are connected");
	p.stores = (struct egress *)&p;
	ret = run_configure(r, "output.receiver_id=0");
	p.stores = NULL;
	assert_int_equal(ret, 0);
}

/* The message of a failed command is cleared by the next command. */
static void
a_message_goes_with_the_next_command(void **state)
{
	struct run_status status;

	assert_int_equal(run_set_veto(r, "veto.strong_min=3", 0, NULL), -EALREADY);
	run_get_status(r, &status);
	assert_string_equal(status.message, "no run whose thresholds can be changed");
	assert_int_equal(run_configure(r, "run.name=x"), 0);
	run_get_status(r, &status);
	assert_string_equal(status.message, "");
	assert_int_equal(run_configure(r, "run.name=x y"), -EINVAL);
	assert_int_equal(run_configure(r, "run.control=telemetry"), -EINVAL);
	run_get_status(r, &status);
	assert_non_null(strstr(status.message, "run.control is fixed while the process runs"));
	assert_int_equal(run_stop(r), 0);
	run_get_status(r, &status);
	assert_string_equal(status.message, "");
	assert_int_equal(run_configure(r, "nonsense"), -EINVAL);
	run_get_status(r, &status);
	assert_string_equal(
		status.message, "'nonsense': expected SECTION.KEY=VALUE, as in veto.strong_min=30");
	assert_int_equal(run_configure(r, "strong_min=3.5"), -EINVAL);
	run_get_status(r, &status);
	assert_non_null(strstr(status.message, "'strong_min=3.5': expected SECTION.KEY=VALUE"));
}

/*
 * The configuration file is edited during a run: the run keeps its settings, and the next one has
 * the new ones.
 */
static void
edited_file_is_for_the_next_run(void **state)
{
	uint64_t effective;

	write_config("[veto]\nstrong_min = 30\nstrong_max = 60\n[run]\nname = edited\n");
	assert_int_equal(run_configure(r, "veto.prescale=5"), 0);
	assert_int_equal(run_start(r), 0);
	write_config("kind = image\ncsr_threshold = 7\n[veto]\nstrong_min = 50\n");
	assert_int_equal(run_set_veto(r, "veto.strong_max=70", 0, &effective), 0);
	assert_int_equal(r->ledger.nb_vetoes, 2);
	for (uint32_t i = 0; i < r->ledger.nb_vetoes; i++) {
		const struct builder_veto *v = &r->ledger.vetoes[i].veto;

		assert_int_equal(v->params.strong_min, 30);
		assert_int_equal(v->params.strong_max, i == 0 ? 60 : 70);
		assert_true(v->params.csr_threshold == 2);
		assert_int_equal(v->params.kind, GK_KIND_CSR);
		assert_int_equal(v->prescale, 5);
	}
	/* a file that was partly written; changes accumulate, except for one that was refused */
	write_config("[veto\n");
	assert_int_equal(run_set_veto(r, "veto.strong_min=80", 0, &effective), -EINVAL);
	assert_int_equal(run_set_veto(r, "veto.dry_run=yes", 0, &effective), 0);
	assert_int_equal(r->settings.veto.params.strong_min, 30);
	assert_int_equal(r->settings.veto.params.strong_max, 70);
	assert_true(r->settings.veto.dry_run);
	stop_run();
	assert_int_equal(run_configure(r, NULL), -EINVAL);
	write_config("[veto]\nstrong_min = 50\n");
	assert_int_equal(run_configure(r, NULL), 0);
	assert_int_equal(r->settings.veto.params.strong_min, 50);
	assert_int_equal(r->settings.veto.params.strong_max, UINT32_MAX);
	assert_false(r->settings.veto.dry_run);
}

/* A run that is armed and stopped shows no data of the run before, and stores no ledger. */
static void
armed_and_stopped(void **state)
{
	struct run_status status;
	char line[256];
	uint32_t kept;
	FILE *f;

	assert_int_equal(run_configure(r, "run.name=A,run.first_frame=1"), 0);
	assert_int_equal(run_start(r), 0);
	send_frames(1, 4);
	stop_run();
	run_get_status(r, &status);
	assert_false(status.failed);
	assert_int_equal(status.first_frame, 1);
	assert_int_equal(status.last_frame, 3);
	assert_int_equal(status.ledger.frames, 3);
	assert_true(status.seconds > 0);
	assert_true(status.veto_version == 1);
	kept = ledgers_kept;
	assert_true(kept > 0);

	assert_int_equal(run_configure(r, "run.name=B"), 0);
	run_get_status(r, &status);
	assert_string_equal(status.name, "B");
	assert_int_equal(status.ledger.frames, 0);
	assert_true(status.ledger.frames_balance && status.ledger.packets_balance);
	assert_int_equal(status.last_frame, 0);
	assert_true(status.seconds == 0);
	assert_int_equal(run_arm(r), 0);
	assert_int_equal(run_stop(r), 0);
	run_get_status(r, &status);
	assert_int_equal(status.state, RUN_IDLE);
	assert_false(status.failed);
	assert_string_equal(status.name, "B");
	assert_int_equal(status.first_frame, 0);
	assert_int_equal(status.last_frame, 0);
	assert_int_equal(status.ledger.frames, 0);
	assert_int_equal(status.veto_version, 0);
	assert_true(status.seconds == 0);
	assert_int_equal(ledgers_kept, kept);
	snprintf(line, sizeof(line), "%s/B_ledger.ini", directory);
	f = fopen(line, "r");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f) != NULL)
		assert_null(strstr(line, "[veto"));
	fclose(f);

	/* gangs fail while the run is armed */
	assert_int_equal(run_configure(r, "run.name=C"), 0);
	assert_int_equal(run_arm(r), 0);
	run_give_up(r, "test");
	run_get_status(r, &status);
	assert_non_null(strstr(status.message, "aborted: test"));
	assert_int_equal(status.ledger.frames, 0);
	assert_int_equal(status.last_frame, 0);
	assert_int_equal(ledgers_kept, kept);
}

/** Wait until the run has ended by itself. */
static void
ends(struct run_status *status)
{
	for (int ms = 0; ms < 20000 && run_get_state(r) != RUN_IDLE; ms++) {
		poll();
		usleep(1000);
	}
	assert_int_equal(run_get_state(r), RUN_IDLE);
	run_get_status(r, status);
}

/*
 * A run begins and ends in the middle of polls: its packets have outcomes, and those of the polls
 * before and after it are not in its ledger.
 */
static void
packets_are_whole(void **state)
{
	struct run_status status;

	assert_int_equal(run_configure(r, "run.name=whole,run.first_frame=1"), 0);
	/* the RX role has received a burst, and places none of it before the run begins */
	p.rx[0]->counters[RX_PACKETS] += 64;
	assert_int_equal(run_start(r), 0);
	p.rx[0]->counters[RX_NO_RUN] += 64;
	p.rx[0]->counted = true;
	send_frames(1, 3);
	stop_run();
	run_get_status(r, &status);
	assert_int_equal(status.ledger.packets[RX_PACKETS], 66);
	assert_int_equal(status.ledger.packets[RX_NO_RUN], 64);
	assert_true(status.ledger.packets_balance && ledger_balanced(&status.ledger));
}

/* The ledger waits for an RX role that has placed packets, and is interrupted before it counts. */
static void
ledger_waits_for_roles(void **state)
{
	struct run_status status;

	assert_int_equal(run_configure(r, "run.name=late_count,run.first_frame=1"), 0);
	assert_int_equal(run_start(r), 0);
	send_frames(1, 3);
	assert_int_equal(run_stop(r), 0);
	for (int i = 0; i < 1000 && !builder_is_idle(p.builder); i++) {
		poll();
		usleep(1000);
	}
	assert_true(builder_is_idle(p.builder));
	for (int i = 0; i < 10; i++)
		run_tick(r);
	assert_int_equal(run_get_state(r), RUN_STOPPING);
	stop_run();
	run_get_status(r, &status);
	assert_false(status.failed);
}

/*
 * The detector is past the run's last frame: at least half of the streams have sent 8 later packets
 * since the last one that was placed, and fewer have sent others.
 */
static void
most_streams_are_past(void **state)
{
	static struct settings four;
	static struct frame_table table;
	struct frame_rx frx = {0};
	struct rx *rx = rte_zmalloc("rx", sizeof(*rx), RTE_CACHE_LINE_SIZE);
	struct pipeline fake = {.settings = &four, .table = &table, .rx = &rx};
	struct run_end end;

	four = settings;
	four.rx_lcores = 1;
	four.detector.streams = 4;
	for (uint32_t s = 1; s < 4; s++)
		four.detector.expect_to[s] = four.detector.expect_to[0];
	assert_non_null(rx);
	rx->frx = &frx;
	rx->beyond[0].packets = rx->beyond[1].packets = 8;
	run_end_begin(&end, &fake);
	/* those of the run before do not count */
	assert_false(run_end_check(&end) || end.past);
	rx->beyond[0].packets += 8;
	rx->beyond[1].packets += 7;
	assert_false(run_end_check(&end) || end.past);
	rx->beyond[1].packets++;
	rx->beyond[1].frame = 5000;
	assert_false(run_end_check(&end));
	assert_true(end.past && end.frame == 5000);
	/* after stream_timeout_ms = 50 */
	frx.listened += rte_get_tsc_hz() / 1000 * 49;
	assert_false(run_end_check(&end));
	frx.listened += rte_get_tsc_hz() / 1000 * 2;
	assert_true(run_end_check(&end));
	/* packets wait: they may be placed */
	rx->waiting[3] = 1;
	assert_false(run_end_check(&end) || end.past);
	rx->waiting[3] = 0;
	rx->beyond[0].packets += 8;
	assert_false(run_end_check(&end) || end.past);
	rx->beyond[0].packets += 8;
	rx->beyond[1].packets += 8;
	frx.listened += rte_get_tsc_hz();
	assert_true(run_end_check(&end));
	/* two other streams are before the run */
	rx->drops[2].packets++;
	assert_true(run_end_check(&end));
	rx->drops[3].packets++;
	assert_false(run_end_check(&end) || end.past);
	rx->beyond[2].packets += 8;
	assert_true(run_end_check(&end));
	rx->counters[RX_PLACED]++;
	assert_false(run_end_check(&end) || end.past);
	rte_free(rx);
}

/* The detector is past the last frame before the first one is placed: the run ends and fails. */
static void
detector_is_past(void **state)
{
	struct run_status status;

	assert_int_equal(run_configure(r, "run.name=past,run.first_frame=1,run.frames=20"), 0);
	assert_int_equal(run_start(r), 0);
	p.rx[0]->counters[RX_PACKETS] += 8;
	p.rx[0]->counters[RX_BEYOND] += 8;
	p.rx[0]->beyond[0].packets += 8;
	p.rx[0]->beyond[0].frame = 5000;
	p.rx[0]->counted = true;
	ends(&status);
	assert_true(status.failed);
	assert_string_equal(status.message,
		"run past: the detector is at frame 5000, the run's last frame is 20; set [run] "
		"first_frame to 'auto' or to a frame that the detector has not sent yet");
	/* the same with other frames of a round-robin, and a client that ends the run */
	assert_int_equal(run_configure(r,
				 "run.name=round,run.first_frame=4,run.frames=2,run.stride=3,"
				 "run.offset=2"),
		0);
	assert_int_equal(run_start(r), 0);
	p.rx[0]->beyond[0].packets += 8;
	run_tick(r);
	stop_run();
	run_get_status(r, &status);
	assert_true(status.failed);
	assert_non_null(strstr(status.message, "the run's last frame is 8; set"));
	assert_int_equal(run_configure(r, "run.name=after"), 0);
	assert_int_equal(run_start(r), 0);
	stop_run();
	run_get_status(r, &status);
	assert_false(status.failed);
}

/*
 * The idle timeout begins with the start. A run that ends by it, or that receives no usable
 * packets, has failed.
 */
static void
nothing_comes(void **state)
{
	struct run_status status;
	struct rx_samples *samples = &p.rx[0]->samples;

	assert_int_equal(run_configure(r, "run.name=none,run.idle_timeout_ms=20"), 0);
	assert_int_equal(run_start(r), 0);
	ends(&status);
	assert_true(status.failed);
	assert_non_null(
		strstr(status.message, "no packet received within [run] idle_timeout_ms = 20"));

	/* packets that are normal on any network do not warn */
	assert_int_equal(run_configure(r, "run.name=others,run.idle_timeout_ms=20"), 0);
	assert_int_equal(run_start(r), 0);
	p.rx[0]->counters[RX_PACKETS] += 2;
	p.rx[0]->counted = true;
	p.rx[0]->counters[RX_FOREIGN] += 2;
	samples->total += 2;
	ends(&status);
	assert_true(status.failed);
	assert_non_null(strstr(status.message, "idle_timeout_ms = 20, but 2 others"));
	assert_string_equal(status.warnings[0], "");

	/* a run stopped before the detector sends has not failed */
	assert_int_equal(run_configure(r, "run.name=early"), 0);
	assert_int_equal(run_start(r), 0);
	stop_run();
	run_get_status(r, &status);
	assert_false(status.failed);
	assert_string_equal(status.message, "");

	/* ... unless packets of its format came: four frames of 128 */
	assert_int_equal(run_configure(r, "run.name=unused"), 0);
	assert_int_equal(run_start(r), 0);
	p.rx[0]->counters[RX_PACKETS] += 513;
	p.rx[0]->counted = true;
	p.rx[0]->counters[RX_REFUSED] += 512;
	p.rx[0]->counters[RX_NO_RUN]++;
	stop_run();
	run_get_status(r, &status);
	assert_true(status.failed);
	assert_string_equal(status.message,
		"run unused: none of 513 received packets was usable; see [packets] in the ledger");

	/* packets to a wrong port, then a stop */
	assert_int_equal(run_configure(r, "run.name=port"), 0);
	assert_int_equal(run_start(r), 0);
	p.rx[0]->counters[RX_PACKETS] += 2;
	p.rx[0]->counted = true;
	p.rx[0]->counters[RX_FOREIGN] += 2;
	samples->total += 2;
	for (uint32_t i = 0; i < 2; i++) {
		struct rx_sample *s = &samples->ring[samples->head++ % RX_SAMPLES];

		memset(s, 0, sizeof(*s));
		s->cause = RX_FOREIGN;
		s->bytes = s->length = sizeof(s->data);
		memcpy(&s->data[12], "\x08\x00\x45\x00\x20\x4c", 6);
		s->data[23] = IPPROTO_UDP;
		memcpy(&s->data[36], "\x12\x34\x20\x38", 4);
	}
	stop_run();
	run_get_status(r, &status);
	assert_true(status.failed);
	assert_string_equal(status.warnings[0], status.message);
	assert_non_null(strstr(status.warnings[0],
		"none of 2 packets is usable: 2 are sent to UDP port "
		"4660 (0.0.0.0:0 to 0.0.0.0:4660, UDP length 8248), "
		"expected 50001; set [detector] udp_port = 4660"));

	/* the next run does not show that warning */
	assert_int_equal(run_configure(r, "run.name=next,run.first_frame=1"), 0);
	assert_int_equal(run_start(r), 0);
	assert_int_equal(run_start(r), -EBUSY);
	assert_string_equal(r->message, "a run is running");
	send_frames(1, 4);
	stop_run();
	run_get_status(r, &status);
	assert_false(status.failed);
	assert_string_equal(status.warnings[0], "");
	assert_string_equal(status.message, "");
	/* but the process remembers that runs have failed */
	assert_int_equal(status.failed_runs, 4);
}

/* The idle time is time in which RX roles poll: not while the process is stopped. */
static void
stopped_process_is_not_idle(void **state)
{
	struct run_status status;

	assert_int_equal(run_configure(r, "run.name=stopped,run.idle_timeout_ms=300"), 0);
	assert_int_equal(run_start(r), 0);
	poll();
	usleep(500000);
	run_tick(r);
	assert_int_equal(run_get_state(r), RUN_RUNNING);
	poll();
	assert_int_equal(run_get_state(r), RUN_RUNNING);
	ends(&status);
	assert_non_null(strstr(status.message, "idle_timeout_ms = 300"));
}

/* A command that timed out is not executed later. */
static void
order_times_out(void **state)
{
	assert_int_equal(run_configure(r, "run.name=late,run.first_frame=1"), 0);
	assert_int_equal(run_arm(r), 0);
	/* the builder is not polled */
	r->lcores_poll = true;
	assert_int_equal(run_start(r), -ETIMEDOUT);
	for (unsigned int i = 0; i < 100; i++)
		poll();
	assert_int_equal(run_get_state(r), RUN_ARMED);
	assert_true(builder_is_idle(p.builder));
	assert_int_equal(p.table->window.state, FRAME_WINDOW_CLOSED);
	r->lcores_poll = false;
	assert_int_equal(run_start(r), 0);
	stop_run();
}

/* The process can end while it is idle; later commands fail with -ESHUTDOWN. */
static void
closes_when_idle(void **state)
{
	assert_int_equal(run_configure(r, "run.name=last"), 0);
	assert_int_equal(run_arm(r), 0);
	assert_false(run_close_if_idle(r));
	assert_int_equal(run_start(r), 0);
	assert_false(run_close_if_idle(r));
	stop_run();
	assert_int_equal(run_configure(r, NULL), 0);
	assert_true(run_close_if_idle(r));
	assert_int_equal(run_get_state(r), RUN_IDLE);
	assert_int_equal(run_configure(r, NULL), -ESHUTDOWN);
	assert_int_equal(run_arm(r), -ESHUTDOWN);
	assert_int_equal(run_start(r), -ESHUTDOWN);
	assert_true(run_close_if_idle(r));
}

static void *
start_run(void *arg)
{
	int *ret = arg;

	*ret = run_start(r);
	return NULL;
}

static void *
tick_run(void *arg)
{
	run_tick(r);
	return NULL;
}

static bool
is_busy(void)
{
	bool busy;

	pthread_mutex_lock(&r->lock);
	busy = r->busy;
	pthread_mutex_unlock(&r->lock);
	return busy;
}

/** Start a client that starts a run, and wait until the run is being armed. */
static void
begin_arming(pthread_t *client, int *ret)
{
	__atomic_store_n(&disk_waits, true, __ATOMIC_RELEASE);
	assert_int_equal(pthread_create(client, NULL, start_run, ret), 0);
	for (int ms = 0; ms < 5000 && run_get_state(r) != RUN_ARMING; ms++)
		usleep(1000);
	assert_int_equal(run_get_state(r), RUN_ARMING);
}

/** Call everything that must not wait for a disk. */
static void
look_at_run(const char *name)
{
	static struct histogram latency[ARROW_TABLES];
	static struct calibration calibration;
	static struct run_status status;
	static struct run_writer writer;
	struct builder_veto veto;

	run_get_status(r, &status);
	assert_string_equal(status.name, name);
	run_get_writer(r, &writer);
	run_get_latency(r, latency);
	run_get_calibration(r, &calibration);
	run_get_veto(r, &veto);
	run_tick(r);
	assert_false(run_close_if_idle(r));
}

/*
 * A killed receiver left large files: while they are recovered, the status can be read, a second
 * start is refused, and a stop ends the recovery.
 */
static void
stopped_while_arming(void **state)
{
	struct run_status status;
	pthread_t client;
	int ret;

	assert_int_equal(run_configure(r, "run.name=recovers"), 0);
	begin_arming(&client, &ret);
	look_at_run("recovers");
	assert_int_equal(run_start(r), -EBUSY);
	assert_string_equal(r->message, "a run is already arming; wait, or stop it");
	assert_int_equal(run_configure(r, NULL), -EBUSY);
	assert_int_equal(run_set_veto(r, "veto.strong_min=3", 0, NULL), -EALREADY);
	assert_int_equal(run_get_state(r), RUN_ARMING);
	assert_int_equal(run_stop(r), 0);
	assert_int_equal(pthread_join(client, NULL), 0);
	__atomic_store_n(&disk_waits, false, __ATOMIC_RELEASE);
	assert_int_equal(ret, -ECANCELED);
	run_get_status(r, &status);
	assert_int_equal(status.state, RUN_IDLE);
	assert_int_equal(status.runs, 0);
	assert_string_equal(status.message, "run recovers was stopped while it was armed");
	/* the next one is not stopped */
	assert_int_equal(run_configure(r, "run.name=again,run.first_frame=1"), 0);
	assert_int_equal(run_start(r), 0);
	send_frames(1, 3);
	stop_run();
	run_get_status(r, &status);
	assert_false(status.failed);
	assert_int_equal(status.ledger.frames, 2);
}

/* The process ends: a run that is being armed ends at once, also if it already has files. */
static void
closed_while_arming(void **state)
{
	char part[PATH_MAX];
	pthread_t client;
	int ret;

	assert_int_equal(run_configure(r, "run.name=closed"), 0);
	begin_arming(&client, &ret);
	run_close(r);
	assert_int_equal(pthread_join(client, NULL), 0);
	__atomic_store_n(&disk_waits, false, __ATOMIC_RELEASE);
	assert_int_equal(ret, -ECANCELED);
	assert_true(run_close_if_idle(r));
	assert_int_equal(run_start(r), -ESHUTDOWN);

	r->closed = false;
	give_up = false;
	assert_int_equal(run_configure(r, "run.name=interrupted"), 0);
	assert_int_equal(run_arm(r), 0);
	snprintf(part, sizeof(part), "%s", batch_writer_path(r->writer, ARROW_FRAMES));
	assert_int_equal(access(part, F_OK), 0);
	run_interrupt();
	pthread_mutex_lock(&r->lock);
	assert_int_equal(disarm(r), -ECANCELED);
	pthread_mutex_unlock(&r->lock);
	assert_int_equal(access(part, F_OK), -1);
	assert_true(run_close_if_idle(r));
}

/** As begin_arming(), of an armed run with stores, until its start waits for the disk. */
static void
begin_slow_start(pthread_t *client, int *ret)
{
	p.stores = (struct egress *)&p;
	__atomic_store_n(&resolved, 0, __ATOMIC_RELAXED);
	begin_arming(client, ret);
	for (int ms = 0; ms < 5000 && __atomic_load_n(&resolved, __ATOMIC_RELAXED) == 0; ms++)
		usleep(1000);
	assert_int_equal(__atomic_load_n(&resolved, __ATOMIC_RELAXED), 1);
}

/**
 * The start of a run resolves its directory and writes the ledger of a killed receiver: the status
 * can be read meanwhile, and a stop is answered. A running run does neither.
 */
static void
looked_at_while_starting(void **state)
{
	struct run_status status;
	pthread_t client;
	char line[256];
	int ret;

	dead = (struct ledger_kept){.version = LEDGER_KEPT_VERSION,
		.running = true,
		.name = "killed",
		.incarnation = 1,
		.first_frame = 1,
		.last_frame = 3,
		.retained_frame = 3,
		.next_sequence = LEDGER_NONE};
	dead.retained[LEDGER_FRAMES] = 3;
	rte_strscpy(dead.directory, directory, sizeof(dead.directory));
	ledgers_of_dead = 0;
	assert_int_equal(run_configure(r, "run.name=stopped_early"), 0);
	assert_int_equal(run_arm(r), 0);
	begin_slow_start(&client, &ret);
	look_at_run("stopped_early");
	assert_int_equal(run_stop(r), 0);
	__atomic_store_n(&disk_waits, false, __ATOMIC_RELEASE);
	assert_int_equal(pthread_join(client, NULL), 0);
	assert_int_equal(ret, -ECANCELED);
	run_get_status(r, &status);
	assert_int_equal(status.state, RUN_IDLE);
	assert_int_equal(status.runs, 0);

	p.stores = NULL;
	assert_int_equal(run_configure(r, "run.name=begins,run.first_frame=1"), 0);
	assert_int_equal(run_arm(r), 0);
	begin_slow_start(&client, &ret);
	look_at_run("begins");
	__atomic_store_n(&disk_waits, false, __ATOMIC_RELEASE);
	assert_int_equal(pthread_join(client, NULL), 0);
	assert_int_equal(ret, 0);
	assert_int_equal(ledgers_of_dead, 2); /* into one file */
	snprintf(line, sizeof(line), "%s/killed_ledger.2.ini", directory);
	assert_int_equal(access(line, F_OK), -1);
	for (uint32_t n = 0; n < 3; n++) {
		memset(&last_kept, 0, sizeof(last_kept));
		r->ledger.keep_at = 0;
		run_tick(r);
		assert_string_equal(last_kept.name, "begins");
		assert_string_equal(last_kept.directory, directory);
	}
	assert_int_equal(resolved, 1);
	dead.version = 0;
	p.stores = NULL;
	send_frames(1, 3);
	stop_run();
	run_get_status(r, &status);
	assert_false(status.failed);
}

/* The end of a run waits for its files: the status can be read, and further commands answer. */
static void
looked_at_while_closing(void **state)
{
	struct run_status status;
	pthread_t service;
	uint64_t progress = 0;

	assert_int_equal(run_configure(r, "run.name=slow,run.first_frame=1"), 0);
	assert_int_equal(run_start(r), 0);
	send_frames(1, 3);
	assert_int_equal(run_stop(r), 0);
	for (int ms = 0; ms < 5000 && !builder_is_idle(p.builder); ms++) {
		for (uint32_t g = 0; g < settings.gangs; g++)
			p.gk_ops->poll(p.gk, g, 0);
		rx_poll(p.rx[0]);
		builder_poll(p.builder);
		usleep(1000);
	}
	/* all RX roles have been polled twice: the next tick closes the files */
	while (!run_ledger_settle(&r->ledger))
		rx_poll(p.rx[0]);
	__atomic_store_n(&disk_waits, true, __ATOMIC_RELEASE);
	assert_int_equal(pthread_create(&service, NULL, tick_run, NULL), 0);
	for (int ms = 0; ms < 5000 && !is_busy(); ms++)
		usleep(1000);
	look_at_run("slow");
	/* a service manager waits as long as there is progress: none when the writer has no work */
	for (int ms = 0; ms < 5000; ms += 10) {
		progress = run_get_progress(r);
		usleep(10000);
		if (run_get_progress(r) == progress)
			break;
	}
	assert_true(run_get_progress(r) == progress);
	assert_int_equal(run_stop(r), 0);
	assert_int_equal(run_abort(r), 0);
	assert_int_equal(run_start(r), -EBUSY);
	assert_int_equal(run_get_state(r), RUN_STOPPING);
	__atomic_store_n(&disk_waits, false, __ATOMIC_RELEASE);
	assert_int_equal(pthread_join(service, NULL), 0);
	assert_true(run_get_progress(r) != progress);
	run_get_status(r, &status);
	assert_int_equal(status.state, RUN_IDLE);
	assert_false(status.failed);
	/* the refused command left no message */
	assert_string_equal(status.message, "");
	assert_int_equal(status.ledger.frames, 2);
}

static int
remove_one(const char *name, const struct stat *s, int type, struct FTW *ftw)
{
	return remove(name);
}

int
main(int argc, char **argv)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	static char options[][40] = {"--no-huge", "--no-shconf", "--no-pci", "--no-telemetry", "-m",
		"512", "--vdev=gpu_host0", "--log-level=braggline.*:critical"};
	char *arguments[RTE_DIM(options) + 1] = {argv[0]};
	const struct CMUnitTest tests[] = {
		TEST(why_a_gang_gave_up),
		TEST(watchdog_has_a_minimum),
		TEST(agreement_is_possible),
		TEST(receiver_id_is_fixed_with_stores),
		TEST(a_message_goes_with_the_next_command),
		TEST(edited_file_is_for_the_next_run),
		TEST(armed_and_stopped),
		TEST(packets_are_whole),
		TEST(ledger_waits_for_roles),
		TEST(most_streams_are_past),
		TEST(detector_is_past),
		TEST(nothing_comes),
		TEST(stopped_while_arming),
		TEST(closed_while_arming),
		TEST(looked_at_while_starting),
		TEST(looked_at_while_closing),
		TEST(stopped_process_is_not_idle),
		TEST(order_times_out),
		TEST(closes_when_idle),
	};
	int ret;

	for (uint32_t i = 0; i < RTE_DIM(options); i++)
		arguments[i + 1] = options[i];
	if (rte_eal_init(RTE_DIM(arguments), arguments) < 0 || mkdtemp(directory) == NULL)
		return 1;
	snprintf(path, sizeof(path), "%s/recv.ini", directory);
	ret = cmocka_run_group_tests(tests, NULL, NULL);
	nftw(directory, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	return ret;
}
