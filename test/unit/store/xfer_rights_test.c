/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests that a key in a store's keyring grants access as its own identity only, against hostile
 * peers with valid keys. XFER_SEED repeats a run.
 */

#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "xfer_hostile_rig.h"
#include "stream/ended.h"
#include "server/known_peers.h"

/* For a flood: requests appear to come from different addresses. */
static bool forge;

void __real_xfer_qp_address(const struct sockaddr_storage *from, uint8_t to[16]);
void __wrap_xfer_qp_address(const struct sockaddr_storage *from, uint8_t to[16]);

void
__wrap_xfer_qp_address(const struct sockaddr_storage *from, uint8_t to[16])
{
	const struct sockaddr_in *four = (const struct sockaddr_in *)from;

	__real_xfer_qp_address(from, to);
	/* derived from the port, which is the same for the whole connection */
	if (forge && four->sin_addr.s_addr == htonl(0x0a000003))
		memcpy(to + 13, &four->sin_port, sizeof(four->sin_port));
}

/*
 * Batches of each table in the run that ends. One batch is kept back: the store does not have it.
 */
static unsigned int
run_batches(void)
{
	return rig_fewest() - 1;
}

/* Let the receiver complete a run, and close it. */
static void
end_a_run(void)
{
	unsigned int k;

	rig_open_store(0);
	rig_open_receiver();
	rig_open_sender(0);
	for (k = 0; k < run_batches(); k++) {
		(void)rig_keep(0, k, 0);
		(void)rig_keep(1, k, 0);
	}
	UNTIL(rig_held() == 0);
	rig_end_run(0);
	rig_close_receiver();
}

#define BOTH (1 << 0 | 1 << 1) /* both tables */

/* Connect with the identity set before, and send REASSIGNED with all batches of some tables. */
static struct peer *
say_moved(unsigned int i, unsigned int tables)
{
	struct peer *p = peer_call(i, NULL);
	unsigned int table;

	p->withholds = true;
	UNTIL(p->handshake.state == XFER_AUTH_DONE || p->refused || p->gone);
	if (p->handshake.state != XFER_AUTH_DONE)
		return p;
	for (table = 0; table < XFER_TABLES; table++)
		peer_lists(p, XFER_REASSIGNED, table == 0 ? XFER_MORE : 0, table, 0,
			(tables >> table & 1) != 0 ? rig.sample.nb[table] : 0);
	peer_holds(p, 0, 0);
	return p;
}

static void
is_refused(struct peer *p, enum xfer_reason reason, uint64_t times)
{
	UNTIL(p->refused != XFER_REASON_NONE || p->gone || p->link.broken || p->granted);
	assert_false(p->granted);
	hostile_hang_up(p);
	UNTIL(hostile_connections() == UINT_MAX);
	assert_int_equal(hostile_counters()->refused[reason], times);
}

static void
speak_for_the_receiver(void)
{
	const struct arrow_identity id = xfer_sample_identity(0);

	peers.receiver_id = id.receiver_id;
	peers.run = id.run;
	peers.incarnation = id.incarnation;
	peers.name = "sample";
}

static void
close_peers(void)
{
	rig.also = NULL;
	rig_close_store(0);
	UNTIL(peers_close());
}

/*
 * The numbers of a receiver's run are in the names of its files. A peer with another key that uses
 * these numbers cannot cut batches.
 */
static void
test_anothers_run(void **state)
{
	end_a_run();
	peers_open(rig.dev[HOSTILE_STATION], 0x0a000002, &rig.hostile_key, &rig.sample);
	rig.also = peers_turn;
	speak_for_the_receiver();
	is_refused(say_moved(1, BOTH), XFER_REASON_RIGHTS, 1);
	/* with the receiver's identity and another key */
	peers.identity = RIG_IDENTITY;
	is_refused(say_moved(2, BOTH), XFER_REASON_KEY, 1);
	close_peers();
	rig_each_is_there_once(run_batches());
}

/*
 * Even with the receiver's own key nothing can be cut after the run has ended, also after a restart
 * of the store.
 */
static void
test_ended_run(void **state)
{
	struct xfer_desc *entry;
	unsigned int table;
	struct peer *p;

	end_a_run();
	rig_close_store(0);
	rig_open_store(0);
	peers_open(rig.dev[HOSTILE_STATION], 0x0a000002, &rig.hostile_key, &rig.sample);
	rig.also = peers_turn;
	peers.identity = RIG_IDENTITY;
	peers.key = &rig.key;
	speak_for_the_receiver();
	for (table = 0; table < XFER_TABLES; table++)
		is_refused(say_moved(1, 1 << table), XFER_REASON_ENDED, 1 + table);
	is_refused(say_moved(1, BOTH), XFER_REASON_ENDED, 1 + XFER_TABLES);
	assert_int_equal(hostile_counters()->reassigned_refused, 1 + XFER_TABLES);
	assert_int_equal(hostile_counters()->batches_truncated, 0);
	/* the store sends its inventory, but takes no further batch */
	p = peer_call(2, NULL);
	UNTIL(p->granted);
	entry = peer_entry(p, 0, run_batches(), 0);
	peer_write_body(p, 0, entry->descriptor.body_bytes);
	peer_write_entry(p, 0, 0, entry);
	UNTIL(p->refused != XFER_REASON_NONE || p->gone || p->link.broken);
	assert_int_equal(hostile_counters()->refused[XFER_REASON_ENDED], 2 + XFER_TABLES);
	hostile_hang_up(p);
	close_peers();
	rig_each_is_there_once(run_batches());
}

/* A receiver that did not receive ENDED can end its run again. */
static void
test_ended_twice(void **state)
{
	const struct arrow_identity id = xfer_sample_identity(0);
	char dir[PATH_MAX];

	end_a_run();
	snprintf(dir, sizeof(dir), "%s/store0/sample-%016lx-%016lx", rig.root, id.receiver_id,
		id.run);
	assert_int_equal(store_ended_read(dir, id.incarnation), 1);
	assert_int_equal(store_ended_read(dir, id.incarnation + 1), 0);
	rig_open_receiver();
	rig_open_sender(0);
	rig_end_run(0);
	rig_close_receiver();
	rig_close_store(0);
	rig_each_is_there_once(run_batches());
}

/*
 * Reassigned batches are cut off the complete files of a run that has not ended, but only with the
 * right to do so.
 */
static void
test_run_that_has_not_ended(void **state)
{
	unsigned int k;

	rig_open_store(0);
	rig_open_receiver();
	rig_open_sender(0);
	for (k = 0; k < rig_fewest(); k++)
		(void)rig_keep(0, k, 0);
	UNTIL(rig_held() == 0);
	rig_close_receiver();
	/* completes its files; the run is not ended */
	rig_close_store(0);
	rig_write_keys("rights = write");
	rig_open_store(0);
	peers_open(rig.dev[HOSTILE_STATION], 0x0a000002, &rig.hostile_key, &rig.sample);
	rig.also = peers_turn;
	peers.identity = RIG_IDENTITY;
	peers.key = &rig.key;
	speak_for_the_receiver();
	is_refused(say_moved(1, BOTH), XFER_REASON_RIGHTS, 1);
	assert_int_equal(hostile_counters()->batches_truncated, 0);
	rig_write_keys("");
	assert_int_equal(store_keys_reload(store_get_shared(rig.store[0])->keys, rig.message), 0);
	(void)say_moved(2, BOTH);
	UNTIL(peer[2].granted);
	assert_int_equal(hostile_counters()->batches_truncated, rig_fewest());
	hostile_hang_up(&peer[2]);
	close_peers();
	rig_each_is_there_once(0);
}

/* A receiver's key is replaced while it is connected, and the old key is removed later. */
static void
test_rotation(void **state)
{
	struct xfer_key next;
	char path[96], more[128];
	const struct store_shared *s;
	FILE *f;

	rig_open_store(0);
	rig_open_receiver();
	rig_open_sender(0);
	UNTIL(rig_stats_of(0).state == STORE_CLIENT_UP);
	s = store_get_shared(rig.store[0]);
	snprintf(path, sizeof(path), "%s/next", rig.root);
	f = fopen(path, "w");
	fprintf(f, "fedcba9876543210fedcba9876543210");
	fclose(f);
	(void)chmod(path, 0600);
	assert_int_equal(xfer_key_read(&next, path, rig.message), 0);
	/* a keyring with a mistake changes nothing */
	rig_write_keys("rights = everything");
	assert_int_equal(store_keys_reload(s->keys, rig.message), -EINVAL);
	assert_non_null(strstr(rig.message, ":4: rights: expected write"));
	/* both keys are valid; the store notices the new file by itself */
	snprintf(more, sizeof(more), "key_next = %s", path);
	rig_write_keys(more);
	UNTIL(store_keys_get(s->keys)->identity[0].fingerprint[1] != 0);
	assert_int_equal(rig_stats_of(0).broken, 0);
	rig_close_sender(0);
	rig.key = next;
	rig_open_sender(0);
	UNTIL(rig_stats_of(0).state == STORE_CLIENT_UP);
	assert_int_equal(s->audit.identity[0].fingerprint, xfer_key_fingerprint(&next));
	/* when the key is removed, its connection is closed, and no new one is accepted */
	rig_write_keys("");
	assert_int_equal(store_keys_reload(s->keys, rig.message), 0);
	UNTIL(s->counters.keys_removed == 1 && rig_stats_of(0).broken == 1);
	UNTIL(s->counters.refused[XFER_REASON_KEY] >= 2);
	assert_int_equal(s->counters.granted, 2);
	rig_close_receiver();
	assert_int_equal(xfer_key_read(&rig.key, rig.key_path, rig.message), 0);
	rig_close_store(0);
}

/*
 * The connections and open runs of one identity are limited, so that others remain for other
 * identities.
 */
static void
test_limits(void **state)
{
	struct peer *p;
	unsigned int i;

	rig_write_keys("connections = 2\nopen_runs = 3");
	rig_open_store(0);
	peers_open(rig.dev[HOSTILE_STATION], 0x0a000002, &rig.hostile_key, &rig.sample);
	rig.also = peers_turn;
	(void)hostile_stand(1);
	speak_for_the_receiver();
	peers.identity = RIG_IDENTITY;
	peers.key = &rig.key;
	for (i = 2; i < 4; i++) {
		peers.incarnation = i;
		(void)hostile_stand(i);
	}
	peers.incarnation = 4;
	p = peer_call(4, NULL);
	UNTIL(hostile_counters()->refused[XFER_REASON_CONNECTIONS] == 1);
	hostile_hang_up(p);
	assert_false(p->granted);
	/* a second connection of the same stream replaces the first one */
	peers.incarnation = 3;
	(void)hostile_stand(5);
	assert_int_equal(hostile_counters()->superseded, 1);
	for (i = 2; i < 6; i++)
		hostile_hang_up(&peer[i]);
	UNTIL(hostile_connections() == 0);
	/* runs stay open when their connections are closed */
	peers.incarnation = 6;
	(void)hostile_stand(6);
	hostile_hang_up(&peer[6]);
	peers.incarnation = 7;
	p = peer_call(7, NULL);
	UNTIL(hostile_counters()->refused[XFER_REASON_RUNS] == 1);
	hostile_hang_up(p);
	assert_false(p->granted);
	/* a run that is open can be continued */
	peers.incarnation = 2;
	(void)hostile_stand(8);
	assert_int_equal(hostile_counters()->refused[XFER_REASON_RUNS], 1);
	assert_int_equal(hostile_counters()->refused[XFER_REASON_CONNECTIONS], 1);
	hostile_hang_up(&peer[8]);
	hostile_hang_up(&peer[1]);
	close_peers();
	rig_write_keys("");
}

/*
 * As many peers as possible, each from a different network, connect repeatedly and send nothing
 * after the request.
 */
static void
flood(void)
{
	const struct xfer_private req = {XFER_MAGIC, XFER_VERSION, XFER_ROLE_RECEIVER, 0,
		sample_random(&rig.sample.sample), {0}, 0};
	static uint64_t called;
	unsigned int i;

	peers_turn();
	for (i = 0; i < PEERS; i++) {
		if (peer[i].link_is_open && (peer[i].gone || peer[i].link.broken))
			(void)peer_hang_up(&peer[i]);
		/* about fifty a second */
		if (!peer[i].link_is_open && xfer_qp_clock() >= called + 20) {
			peer_call(i, &req)->mute = true;
			called = xfer_qp_clock();
		}
	}
}

/* Time for which this thread has run, in ms. */
static uint64_t
own_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/*
 * During a flood a receiver whose connection breaks is connected again within 2 s. This thread is
 * all of them and never sleeps, so the time counts for which it runs, not that of other programs.
 */
static void
test_flood(void **state)
{
	const struct store_shared *s;
	uint64_t begin, ms, worst = 0;
	unsigned int round, i;

	rig_open_store(0);
	s = store_get_shared(rig.store[0]);
	rig_open_receiver();
	rig_open_sender(0);
	UNTIL(rig_stats_of(0).state == STORE_CLIENT_UP);
	peers_open(rig.dev[HOSTILE_STATION], 0x0a000002, &rig.hostile_key, &rig.sample);
	forge = true;
	rig.also = flood;
	/* unknown peers have taken all slots open to them */
	UNTIL(s->admission.full > 0 && s->counters.requests > 64);
	for (round = 0; round < 3; round++) {
		begin = own_ms();
		rig_close_sender(0);
		rig_open_sender(0);
		UNTIL(rig_stats_of(0).state == STORE_CLIENT_UP);
		ms = own_ms() - begin;
		worst = RTE_MAX(worst, ms);
	}
	printf("%lu requests, %lu admitted, %lu evicted, %lu late; back after %lu ms at most\n",
		s->counters.requests, s->admission.admitted, s->admission.evicted,
		s->admission.late, worst);
	assert_true(worst < 2000);
	/* a busy machine may need another attempt */
	assert_true(s->admission.admitted_known >= 3);
	/* the warnings are limited */
	assert_true(s->warnings.suppressed_ever > 0);
	rig.also = peers_turn;
	for (i = 0; i < PEERS; i++)
		hostile_hang_up(&peer[i]);
	forge = false;
	rig_end_run(0);
	rig_close_receiver();
	close_peers();
}

/*
 * Start the store, wait until the receiver is connected, and stop the store. @param known  whether
 * the store is expected to know the receiver
 */
static void
begin_again(const char *path, bool known)
{
	rig_open_store(0);
	UNTIL(rig_stats_of(0).state == STORE_CLIENT_UP);
	assert_int_equal(store_get_shared(rig.store[0])->admission.admitted_known, known);
	/* from here on the file survives a kill of the store */
	UNTIL(access(path, F_OK) == 0);
	rig_close_store(0);
	UNTIL(rig_stats_of(0).state != STORE_CLIENT_UP);
}

/*
 * A restarted store remembers who was authenticated. A file that is damaged, or that another user
 * could have made, is ignored; the target of a link is not written to.
 */
static void
test_started_again(void **state)
{
	char path[PATH_MAX], other[PATH_MAX];
	struct stat st;
	uint8_t byte;
	int fd;

	snprintf(path, sizeof(path), "%s/store0/" STORE_KNOWN_PEERS, rig.root);
	snprintf(other, sizeof(other), "%s/other", rig.root);
	rig_open_receiver();
	rig_open_sender(0);
	begin_again(path, false);
	begin_again(path, true);
	/* flip a bit */
	fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &byte, 1, 20), 1);
	byte ^= 1;
	assert_int_equal(pwrite(fd, &byte, 1, 20), 1);
	close(fd);
	begin_again(path, false);
	begin_again(path, true);
	assert_int_equal(chmod(path, 0666), 0);
	begin_again(path, false);
	/* replace the file by a link to it */
	assert_int_equal(rename(path, other), 0);
	assert_int_equal(symlink(other, path), 0);
	assert_int_equal(truncate(other, 1), 0);
	begin_again(other, false);
	assert_int_equal(stat(other, &st), 0);
	assert_int_equal(st.st_size, 1);
	rig_open_store(0);
	UNTIL(rig_stats_of(0).state == STORE_CLIENT_UP);
	assert_int_equal(store_get_shared(rig.store[0])->admission.admitted_known, 1);
	rig_end_run(0);
	rig_close_receiver();
	rig_close_store(0);
}

static unsigned int
nb_directories(void)
{
	char dir[96];
	struct dirent *entry;
	unsigned int n = 0;
	DIR *d;

	snprintf(dir, sizeof(dir), "%s/store0", rig.root);
	d = opendir(dir);
	assert_non_null(d);
	while ((entry = readdir(d)) != NULL)
		n += entry->d_name[0] != '.';
	closedir(d);
	return n;
}

/* Open a store with limits, for peers of one identity. */
static void
open_limited(uint64_t quota, uint64_t runs_max)
{
	rig.quota = quota;
	rig.runs_max = runs_max;
	rig_open_store(0);
	rig.quota = 0;
	rig.runs_max = 0;
	peers_open(rig.dev[HOSTILE_STATION], 0x0a000002, &rig.hostile_key, &rig.sample);
	rig.also = peers_turn;
}

/* End a run with `batches` batches of one table. */
static void
end_with(struct peer *p, unsigned int batches)
{
	struct xfer_end m;

	xfer_msg_begin(&m, XFER_END, sizeof(m), p->sent++);
	m.batches[0] = batches;
	m.batches[1] = 0;
	peer_say(p, &m, sizeof(m));
	UNTIL(p->ended);
	hostile_hang_up(p);
	UNTIL(hostile_connections() == UINT_MAX);
}

/* Begin and end a run with `batches` batches of one table. */
static void
end_run_of(unsigned int i, uint64_t run, unsigned int batches)
{
	struct xfer_desc *entry;
	struct peer *p;
	unsigned int k;

	peers.run = run;
	p = peer_call(i, NULL);
	UNTIL(p->granted);
	for (k = 0; k < batches; k++) {
		entry = peer_entry(p, 0, k, k);
		peer_write_body(p, k, entry->descriptor.body_bytes);
		peer_write_entry(p, k, k, entry);
	}
	UNTIL(p->durable == batches);
	end_with(p, batches);
}

/*
 * A receiver with its maximum number of runs can begin no other, neither a run nor an incarnation,
 * but its runs are served. Nothing is created for a run that is refused.
 */
static void
test_too_many_runs(void **state)
{
	open_limited(0, 2);
	end_run_of(1, 1, 1);
	end_run_of(1, 2, 0);
	assert_int_equal(nb_directories(), 2);
	peers.run = 3;
	is_refused(peer_call(1, NULL), XFER_REASON_QUOTA, 1);
	peers.run = 1;
	is_refused(peer_call(2, NULL), XFER_REASON_QUOTA, 2);
	end_run_of(1, 1, 0);
	/* a run that ended without a batch, too */
	end_run_of(1, 2, 0);
	assert_int_equal(nb_directories(), 2);
	close_peers();
}

#define MANY 2000 /* runs: measuring them takes longer than beginning one */

/* Of two runs that begin at the same moment, the limit admits one. */
static void
test_runs_at_once(void **state)
{
	struct peer *p[2];
	char dir[PATH_MAX];
	unsigned int i;

	open_limited(0, MANY + 1);
	for (i = 0; i < MANY; i++) {
		snprintf(dir, sizeof(dir), "%s/store0/old-%016" PRIx64 "-%016x", rig.root,
			peers.receiver_id, i);
		assert_int_equal(mkdir(dir, 0755), 0);
	}
	for (i = 0; i < 2; i++) {
		peers.run = MANY + i;
		p[i] = peer_call(1 + i, NULL);
	}
	for (i = 0; i < 2; i++)
		UNTIL(p[i]->granted || p[i]->refused != XFER_REASON_NONE || p[i]->gone);
	assert_int_equal(p[0]->granted + p[1]->granted, 1);
	assert_int_equal(hostile_counters()->refused[XFER_REASON_QUOTA], 1);
	assert_int_equal(nb_directories(), MANY + 1);
	for (i = 0; i < 2; i++)
		hostile_hang_up(p[i]);
	UNTIL(hostile_connections() == UINT_MAX);
	close_peers();
	assert_int_equal(nb_directories(), MANY);
}

/* The same for a receiver that has used up its quota. */
static void
test_quota_used_up(void **state)
{
	open_limited(2 * XFER_BLOCK, 0);
	end_run_of(1, 1, 0);
	end_run_of(2, 1, 0);
	peers.run = 2;
	is_refused(peer_call(1, NULL), XFER_REASON_QUOTA, 1);
	peers.run = 1;
	is_refused(peer_call(3, NULL), XFER_REASON_QUOTA, 2);
	end_run_of(1, 1, 0);
	assert_int_equal(nb_directories(), 1);
	close_peers();
}

/*
 * A run whose quota is reached can be ended: what is durable stays, in a complete file, and only
 * another run is refused.
 */
static void
test_quota_reached_at_end(void **state)
{
	const uint64_t batch = XFER_BLOCK + rig.sample.batch[0][0].batch.body_bytes;
	struct xfer_desc *entry;
	char path[PATH_MAX];
	unsigned int k;
	struct peer *p;
	struct stat st;

	/* its file also has a schema and a footer, which are more than that */
	open_limited(batch, 0);
	peers.run = 1;
	p = peer_call(1, NULL);
	UNTIL(p->granted);
	/* the quota is reached, and the file is closed, by the second one */
	for (k = 0; k < 2; k++) {
		entry = peer_entry(p, 0, k, k);
		peer_write_body(p, k, entry->descriptor.body_bytes);
		peer_write_entry(p, k, k, entry);
	}
	UNTIL(p->durable == 1);
	end_with(p, 1);
	snprintf(path, sizeof(path),
		"%s/store0/hostile-%016" PRIx64 "-%016x/hostile_%016x_000001_frames.arrow",
		rig.root, peers.receiver_id, 1, 1);
	assert_int_equal(stat(path, &st), 0);
	assert_true(st.st_size > batch);
	peers.run = 2;
	is_refused(peer_call(1, NULL), XFER_REASON_QUOTA, 1);
	end_run_of(1, 1, 0);
	close_peers();
}

/* A run that was closed without a batch and was not ended leaves nothing. */
static void
test_nothing_is_left(void **state)
{
	struct peer *p;

	open_limited(0, 1);
	peers.run = 1;
	p = peer_call(1, NULL);
	UNTIL(p->granted);
	assert_int_equal(nb_directories(), 1);
	hostile_hang_up(p);
	UNTIL(hostile_connections() == UINT_MAX);
	close_peers();
	assert_int_equal(nb_directories(), 0);
}

int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_anothers_run, rig_begin_test),
		cmocka_unit_test_setup(test_ended_run, rig_begin_test),
		cmocka_unit_test_setup(test_ended_twice, rig_begin_test),
		cmocka_unit_test_setup(test_too_many_runs, rig_begin_test),
		cmocka_unit_test_setup(test_runs_at_once, rig_begin_test),
		cmocka_unit_test_setup(test_quota_used_up, rig_begin_test),
		cmocka_unit_test_setup(test_quota_reached_at_end, rig_begin_test),
		cmocka_unit_test_setup(test_nothing_is_left, rig_begin_test),
		cmocka_unit_test_setup(test_run_that_has_not_ended, rig_begin_test),
		cmocka_unit_test_setup(test_rotation, rig_begin_test),
		cmocka_unit_test_setup(test_limits, rig_begin_test),
		cmocka_unit_test_setup(test_flood, rig_begin_test),
		cmocka_unit_test_setup(test_started_again, rig_begin_test),
	};

	return rig_main(tests);
}
