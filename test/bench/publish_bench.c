/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Time from the end of the write of a batch until a worker of CrystFEL has an image of it: a file
 * of images is written again, batch by batch, as a receiver does it, and braggline-publish follows
 * it. In turns, a subscriber of all images is connected that hangs.
 * The peer is a bare ZeroMQ socket that sends messages of the same size to the same number of
 * workers.
 *
 * usage: publish_bench PUBLISH RUN_images.arrow [WORKERS [INTERVAL_MS [ROUNDS]]]
 */

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <msgpack.h>
#include <zmq.h>

#include "scan/images.h"

#define WORKERS_MAX 64
#define IMAGES_MAX  65536
#define WORKER_ROOM (32 << 20) /* bytes of memory that workers have used before */
#define AHEAD	    (64 << 20) /* bytes that are allocated beyond the batches */
#define TIMEOUT_MS  20000
#define ROUNDS_MAX  32

/* An image that a worker got. */
struct arrival {
	uint64_t frame;
	int64_t seen, then; /* ns */
	size_t size;
};

static struct {
	const char *address;
	void *context;
	unsigned int images; /* expected; atomic */
	unsigned int nb;     /* arrived; atomic */
	struct arrival arrival[IMAGES_MAX];
	int64_t written[IMAGES_MAX]; /* by index in the file */
	uint64_t frame[IMAGES_MAX];
	unsigned int nb_frames;
	bool bare; /* messages begin with the time at which they were sent */
} bench;

static int64_t
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void
die(const char *what)
{
	fprintf(stderr, "publish_bench: %s: %s\n", what,
		errno != 0 ? zmq_strerror(errno) : "wrong");
	exit(1);
}

static void
parse(const void *data, size_t size, struct arrival *a)
{
	const msgpack_object_kv *kv;
	msgpack_unpacked u;
	size_t at = 0;

	if (bench.bare) {
		memcpy(&a->seen, data, sizeof(a->seen));
		return;
	}
	msgpack_unpacked_init(&u);
	if (msgpack_unpack_next(&u, data, size, &at) != MSGPACK_UNPACK_SUCCESS)
		die("message");
	kv = u.data.via.array.ptr[0].via.map.ptr;
	for (uint32_t i = 0; i < u.data.via.array.ptr[0].via.map.size; i++) {
		if (kv[i].key.via.str.size == 5 && memcmp(kv[i].key.via.str.ptr, "frame", 5) == 0)
			a->frame = kv[i].val.via.u64;
		if (kv[i].key.via.str.size == 7 && memcmp(kv[i].key.via.str.ptr, "seen_ns", 7) == 0)
			a->seen = kv[i].val.via.i64;
	}
	msgpack_unpacked_destroy(&u);
}

static void *
work(void *arg)
{
	/* its own I/O thread: workers are processes */
	void *context = zmq_ctx_new(), *socket = zmq_socket(context, ZMQ_REQ);
	const int zero = 0, timeout = 100;
	struct arrival a;
	zmq_msg_t m;

	zmq_setsockopt(socket, ZMQ_LINGER, &zero, sizeof(zero));
	zmq_setsockopt(socket, ZMQ_RCVTIMEO, &timeout, sizeof(timeout));
	if (zmq_connect(socket, bench.address) < 0 || zmq_send(socket, "next", 4, 0) < 0)
		die(bench.address);
	while (__atomic_load_n(&bench.nb, __ATOMIC_RELAXED) < bench.images) {
		zmq_msg_init(&m);
		if (zmq_msg_recv(&m, socket, 0) < 0)
			continue;
		memset(&a, 0, sizeof(a));
		a.then = now();
		a.size = zmq_msg_size(&m);
		parse(zmq_msg_data(&m), a.size, &a);
		zmq_msg_close(&m);
		bench.arrival[__atomic_fetch_add(&bench.nb, 1, __ATOMIC_RELAXED) % IMAGES_MAX] = a;
		zmq_send(socket, "next", 4, 0);
	}
	zmq_close(socket);
	zmq_ctx_term(context);
	return arg;
}

/*
 * Workers run for hours: their first messages would be late by the first touch of the pages that
 * ZeroMQ gets for them, which free(3) would give back to the kernel.
 */
static void
warm_up_workers(void)
{
	void *room;

	(void)mallopt(M_ARENA_MAX, 1);
	(void)mallopt(M_MMAP_THRESHOLD, WORKER_ROOM);
	(void)mallopt(M_TRIM_THRESHOLD, 2 * WORKER_ROOM);
	room = malloc(WORKER_ROOM - 4096);
	if (room == NULL)
		die("memory of workers");
	memset(room, 1, WORKER_ROOM - 4096);
	free(room);
}

static void
start_workers(pthread_t *thread, unsigned int nb, unsigned int images)
{
	bench.images = images;
	bench.nb = 0;
	for (unsigned int i = 0; i < nb; i++)
		pthread_create(&thread[i], NULL, work, NULL);
	usleep(300000);
}

static void
join_workers(pthread_t *thread, unsigned int nb)
{
	for (unsigned int i = 0; i < nb; i++)
		pthread_join(thread[i], NULL);
}

/* A process that subscribes to the address that it reads, and hangs. Threads begin after it. */
struct viewer {
	pid_t pid;
	int to, from;
};

static void __attribute__((noreturn)) hang(int in, int out)
{
	void *context = zmq_ctx_new(), *socket = zmq_socket(context, ZMQ_SUB);
	const int one = 1;
	char address[256] = "";

	if (read(in, address, sizeof(address) - 1) <= 0)
		_exit(0);
	zmq_setsockopt(socket, ZMQ_RCVHWM, &one, sizeof(one));
	zmq_setsockopt(socket, ZMQ_SUBSCRIBE, "", 0);
	if (zmq_connect(socket, address) < 0)
		die(address);
	usleep(200000);
	if (write(out, "", 1) != 1)
		_exit(1);
	raise(SIGSTOP);
	_exit(0);
}

static struct viewer
make_viewer(void)
{
	int to[2], from[2];
	struct viewer v;

	if (pipe(to) < 0 || pipe(from) < 0)
		die("pipe");
	v = (struct viewer){fork(), to[1], from[0]};
	if (v.pid < 0)
		die("fork");
	if (v.pid == 0) {
		close(to[1]);
		hang(to[0], from[1]);
	}
	close(to[0]);
	close(from[1]);
	return v;
}

static void
connect_viewer(const struct viewer *v, const char *address)
{
	char c;

	if (write(v->to, address, strlen(address)) < 0 || read(v->from, &c, 1) != 1)
		die("the subscriber that hangs");
}

static void
end_viewer(const struct viewer *v)
{
	kill(v->pid, SIGKILL);
	waitpid(v->pid, NULL, 0);
	close(v->to);
	close(v->from);
}

static void
read_address(FILE *out, const char *name, char address[256])
{
	char line[512], prefix[64];
	const int length = snprintf(prefix, sizeof(prefix), "%s: ", name);

	if (out == NULL || fgets(line, sizeof(line), out) == NULL ||
		strncmp(line, prefix, length) != 0)
		die(name);
	line[strcspn(line, "\n")] = '\0';
	snprintf(address, 256, "%.255s", line + length);
}

static pid_t
start_publisher(const char *program, const char *dir, char address[256], char view[256])
{
	int ends[2];
	FILE *out;
	pid_t pid;

	if (pipe(ends) < 0)
		die("pipe");
	pid = fork();
	if (pid == 0) {
		dup2(ends[1], STDOUT_FILENO);
		execl(program, program, "--crystfel", "tcp://127.0.0.1:*", "--crystfel-pub",
			"tcp://127.0.0.1:*", dir, (char *)NULL);
		die(program);
	}
	close(ends[1]);
	out = fdopen(ends[0], "r");
	read_address(out, "crystfel", address);
	read_address(out, "crystfel-pub", view);
	/* `out` stays open for the summary of the publisher */
	return pid;
}

/* Writes all batches, and notes the time for each of their images. */
static void
write_file(const struct arrow_reader *r, const char *dir, unsigned int ms)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	char path[PATH_MAX], part[PATH_MAX];
	const struct arrow_read_batch *b;
	struct scan_images images;
	int64_t then;
	int fd;

	snprintf(path, sizeof(path), "%.4000s/bench_images.arrow", dir);
	snprintf(part, sizeof(part), "%.4080s.part", path);
	fd = open(part, O_RDWR | O_CREAT | O_EXCL, 0644);
	if (fd < 0 || fcntl(fd, F_OFD_SETLK, &lock) < 0)
		die(part);
	if (posix_fallocate(fd, 0, (off_t)(r->size + AHEAD)) != 0 ||
		pwrite(fd, r->data, r->begin, 0) != (ssize_t)r->begin)
		die(part);
	usleep(300000);
	bench.nb_frames = 0;
	for (size_t i = 0; i < r->nb_batches; i++) {
		b = &r->batches[i];
		if (pwrite(fd, r->data + b->offset, b->metadata_size + b->body_length,
			    (off_t)b->offset) < 0)
			die(part);
		then = now();
		if (scan_images_open(r, i, &images) < 0)
			die("a batch of the file");
		for (uint64_t k = 0; k < b->rows && bench.nb_frames < IMAGES_MAX; k++) {
			bench.written[bench.nb_frames] = then;
			bench.frame[bench.nb_frames++] = ((const uint64_t *)images.frame.data)[k];
		}
		usleep(ms * 1000);
	}
	if (pwrite(fd, r->data + r->end, r->size - r->end, (off_t)r->end) < 0 ||
		ftruncate(fd, (off_t)r->size) < 0 || rename(part, path) < 0)
		die(part);
	close(fd);
	for (int waited = 0; __atomic_load_n(&bench.nb, __ATOMIC_RELAXED) < bench.images;
		waited++) {
		if (waited == TIMEOUT_MS)
			die("not all images arrived");
		usleep(1000);
	}
	if (unlink(path) < 0)
		die(path);
}

static int
by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void
print_row(const char *what, double *ms, unsigned int nb)
{
	qsort(ms, nb, sizeof(*ms), by_value);
	printf("%-44s %7u %8.2f %8.2f %8.2f\n", what, nb, ms[nb / 2], ms[nb * 95 / 100],
		ms[nb - 1]);
}

static int64_t
written_at(uint64_t frame)
{
	for (unsigned int i = 0; i < bench.nb_frames; i++) {
		if (bench.frame[i] == frame)
			return bench.written[i];
	}
	die("a frame that the file does not have");
	return 0;
}

/* The same messages through a bare ZeroMQ socket. */
static void
send_bare(unsigned int workers, unsigned int images, size_t size, unsigned int ms)
{
	void *socket = zmq_socket(bench.context, ZMQ_ROUTER);
	uint8_t id[256], *data = calloc(1, size);
	size_t length = 256;
	char address[256];
	pthread_t thread[WORKERS_MAX];
	int64_t then;
	int n;

	if (socket == NULL || data == NULL || zmq_bind(socket, "tcp://127.0.0.1:*") < 0 ||
		zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, address, &length) < 0)
		die("bare socket");
	bench.address = address;
	bench.bare = true;
	start_workers(thread, workers, images);
	for (unsigned int i = 0; i < images; i++) {
		n = zmq_recv(socket, id, sizeof(id), 0);
		if (n < 0 || zmq_recv(socket, data, size, 0) < 0 ||
			zmq_recv(socket, data, size, 0) < 0)
			die("bare socket");
		then = now();
		memcpy(data, &then, sizeof(then));
		zmq_send(socket, id, n, ZMQ_SNDMORE);
		zmq_send(socket, "", 0, ZMQ_SNDMORE);
		zmq_send(socket, data, size, 0);
		usleep(ms * 1000);
	}
	join_workers(thread, workers);
	zmq_close(socket);
	free(data);
}

int
main(int argc, char **argv)
{
	const unsigned int workers = argc > 3 ? atoi(argv[3]) : 2;
	const unsigned int ms = argc > 4 ? atoi(argv[4]) : 50,
			   rounds = argc > 5 ? atoi(argv[5]) : 3;
	static double written[2][IMAGES_MAX], found[2][IMAGES_MAX], bare[IMAGES_MAX];
	char dir[] = "publish_bench.XXXXXX", address[256], view[256];
	struct viewer viewer[ROUNDS_MAX];
	pthread_t thread[WORKERS_MAX];
	unsigned int nb[2] = {0}, images = 0, i;
	struct arrow_reader r;
	const char *problem;
	size_t size = 0;
	pid_t pid;

	if (argc < 3 || workers < 1 || workers > WORKERS_MAX || rounds > ROUNDS_MAX) {
		fprintf(stderr,
			"usage: publish_bench PUBLISH RUN_images.arrow [WORKERS [INTERVAL_MS "
			"[ROUNDS]]]\n");
		return 2;
	}
	if (arrow_reader_open(&r, argv[2], &problem) < 0)
		die(argv[2]);
	for (i = 0; i < r.nb_batches; i++)
		images += r.batches[i].rows;
	for (unsigned int round = 0; round < rounds; round++)
		viewer[round] = make_viewer();
	warm_up_workers();
	bench.context = zmq_ctx_new();
	if (mkdtemp(dir) == NULL)
		die(dir);
	for (unsigned int turn = 0; turn < 2 * rounds && nb[turn % 2] + images <= IMAGES_MAX;
		turn++) {
		const unsigned int way = turn % 2;

		pid = start_publisher(argv[1], dir, address, view);
		if (way == 1)
			connect_viewer(&viewer[turn / 2], view);
		bench.address = address;
		bench.bare = false;
		start_workers(thread, workers, images);
		write_file(&r, dir, ms);
		join_workers(thread, workers);
		kill(pid, SIGTERM);
		waitpid(pid, NULL, 0);
		for (i = 0; i < images; i++) {
			const struct arrival *a = &bench.arrival[i];

			written[way][nb[way]] = (a->then - written_at(a->frame)) / 1e6;
			found[way][nb[way]++] = (a->then - a->seen) / 1e6;
			size = a->size;
		}
		if (way == 1)
			end_viewer(&viewer[turn / 2]);
	}
	if (rmdir(dir) < 0)
		die(dir);
	send_bare(workers, images, size, ms);
	for (i = 0; i < images; i++)
		bare[i] = (bench.arrival[i].then - bench.arrival[i].seen) / 1e6;
	printf("%zu batches of %.1f images, %.2f MB a message, %u workers, a batch every %u ms\n",
		r.nb_batches, (double)images / r.nb_batches, size / 1e6, workers, ms);
	printf("%-44s %7s %8s %8s %8s\n", "ms", "images", "p50", "p95", "longest");
	print_row("batch written -> image at a worker", written[0], nb[0]);
	print_row("batch found by the publisher -> worker", found[0], nb[0]);
	print_row("a viewer hangs: written -> worker", written[1], nb[1]);
	print_row("a viewer hangs: found -> worker", found[1], nb[1]);
	print_row("bare ZeroMQ, message of that size -> worker", bare, images);
	zmq_ctx_term(bench.context);
	arrow_reader_close(&r);
	return 0;
}
