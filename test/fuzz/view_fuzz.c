/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What braggline-view reads: texts of HTTP requests, bodies of commands, and live files. The first
 * byte selects one. A live file is a valid small one, of which the input replaces the head, the
 * facts of a frame and the geometry. Whatever it has, an image has the size of its raster, or there
 * is none.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gk_abi.h>

#include "commands.h"
#include "images.h"
#include "live_reader.h"
#include "request.h"
#include "seed_corpus.h"

#define WANT(condition)           \
	do {                      \
		if (!(condition)) \
			abort();  \
	} while (0)

#define ROWS	 8
#define COLS	 32
#define PIXELS	 (ROWS * COLS)
#define SLOT	 (LIVE_FILE_DATA + 4096)
#define GEOMETRY 1024 /* bytes of text */
/* part of the head that inputs replace: all but the counters by packet */
#define HEAD offsetof(struct live_file_head, missing_frames)

static const char text[] =
	"clen = 0.1\nphoton_energy = 12400\nadu_per_photon = 1\nres = 13333.3\np0/min_fs = 0\n"
	"p0/max_fs = 31\np0/min_ss = 0\np0/max_ss = 7\np0/corner_x = -16\n"
	"p0/corner_y = 4\np0/fs = x\np0/ss = -y\n";
static uint8_t *file;
static size_t file_size;
static char path[64];
static struct images_cache *cache;

static void
check_texts(const uint8_t *data, size_t size)
{
	char line[512], name[REQUEST_NAME_LEN];
	struct request_window w;
	struct request_run run;
	enum request_target target;
	uint64_t begin, length;

	if (size >= sizeof(line))
		return;
	memcpy(line, data, size);
	line[size] = '\0';
	target = request_target(line, name);
	WANT(name[0] == '\0' || request_is_name(name));
	WANT((target >= REQUEST_SOURCE && target <= REQUEST_PLACES) == (name[0] != '\0'));
	if (request_run_file(line, &run) == 0)
		WANT(request_is_run_name(run.file) && strchr(run.sub, '/') == NULL);
	if (request_range(line, 1000, &begin, &length) != REQUEST_RANGE_OUTSIDE)
		WANT(begin <= 1000 && length <= 1000 - begin);
	if (request_window(line, &w) == 0)
		WANT(w.bin >= 1 && w.bin <= REQUEST_BIN_MAX && w.width >= 1 && w.height >= 1);
	(void)request_plane(line);
	(void)request_is_local_host(line);
	(void)request_is_same_site(line);
	(void)request_bearer(line);
	(void)request_matches(line, "\"1-2-3\"");
	(void)request_is_json(line);
	(void)commands_is_control(SOURCE_RECEIVER, line);
}

static void
check_command(const uint8_t *data, size_t size)
{
	struct request_command c;
	const char *why = NULL;

	if (request_command(data, size, &c, &why) != 0) {
		WANT(why != NULL);
		return;
	}
	WANT(c.path[0] == '/' && strncmp(c.text, c.path, strlen(c.path)) == 0);
	for (const char *p = c.text; *p != '\0'; p++)
		WANT((uint8_t)*p >= ' ');
}

static void
make_file(void)
{
	struct live_file_head *h;

	file_size = LIVE_FILE_ALIGN * 6 + 2 * SLOT + 4 * LIVE_FILE_ALIGN;
	file = calloc(1, file_size);
	WANT(file != NULL);
	h = (struct live_file_head *)file;
	memcpy(h->magic, LIVE_FILE_MAGIC, sizeof(h->magic));
	h->size = file_size;
	h->id = 1;
	h->rows = ROWS;
	h->cols = COLS;
	h->packets = 4;
	h->packet_rows = 2;
	h->nnz_cap = 64;
	h->row_ptr = 0;
	h->col = 64;
	h->values = 256;
	h->slot[0] = 6 * LIVE_FILE_ALIGN;
	h->slot[1] = h->slot[0] + SLOT;
	h->maximum = h->slot[1] + SLOT;
	h->sum = h->maximum + LIVE_FILE_ALIGN;
	h->mask = h->sum + LIVE_FILE_ALIGN;
	h->geometry = h->mask + LIVE_FILE_ALIGN;
	h->geometry_size = sizeof(text) - 1;
	h->generation = 2;
	h->sequence = 1;
	h->frames = 1;
	memcpy(file + h->geometry, text, sizeof(text) - 1);
	((struct live_file_frame *)(file + h->slot[1]))->begin = 1;
	((struct live_file_frame *)(file + h->slot[1]))->end = 1;
}

/* The input is the head, facts of the frame, its first pixels, and the geometry. */
static void
check_live(const uint8_t *data, size_t size)
{
	const struct {
		size_t at, size;
	} part[] = {
		{0, HEAD},
		{6 * LIVE_FILE_ALIGN + SLOT, offsetof(struct live_file_frame, missing_map)},
		{6 * LIVE_FILE_ALIGN + SLOT + LIVE_FILE_DATA, 512},
		{9 * LIVE_FILE_ALIGN + 2 * SLOT, GEOMETRY},
	};
	const struct request_window w = {.x = 1, .y = 1, .width = 9, .height = 5, .bin = 2};
	uint8_t *changed = malloc(file_size);
	struct live_reader r;
	struct body body;
	int fd;

	WANT(changed != NULL);
	memcpy(changed, file, file_size);
	for (size_t i = 0; i < 4; i++) {
		const size_t n = size < part[i].size ? size : part[i].size;

		memcpy(changed + part[i].at, data, n);
		data += n;
		size -= n;
	}
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	WANT(fd >= 0 && write(fd, changed, file_size) == (ssize_t)file_size);
	close(fd);
	free(changed);
	if (live_reader_open(&r, path) == 0) {
		live_reader_close(&r);
		for (int plane = REQUEST_PLANE_FRAME; plane <= REQUEST_PLANE_MASK; plane++) {
			if (images_plane(path, plane, &body) == 0)
				WANT(body.size > live_reader_pixels(&r.head));
			free(body.bytes);
		}
		for (int plane = REQUEST_PLANE_FRAME; plane < REQUEST_PLANE_MASK; plane++) {
			if (images_window(path, plane, &w, cache, &body) == 0)
				WANT(body.size == 128 + 5 * 3 * sizeof(float));
			free(body.bytes);
		}
		(void)images_frame(path, NULL, NULL, &body);
		free(body.bytes);
		(void)images_frame(path, &w, cache, &body);
		free(body.bytes);
		(void)images_geometry(path, &body);
		free(body.bytes);
		(void)images_places(path, &body);
		free(body.bytes);
	}
	unlink(path);
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static const char *const texts[] = {"/api/v1/sources/rte/telemetry", "1,2,3,4,5",
		"localhost:80", "Bearer x", "\"1-2-3\", W/\"2\"", "application/json; x"};
	static const char command[] =
		"\1{\"command\":\"/braggline/run/start\",\"parameters\":\"run.name=x\"}";
	uint8_t live[1 + HEAD + 1024] = {2};
	char name[16], line[128];

	seed_begin(argc, argv);
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		snprintf(name, sizeof(name), "text%zu", i);
		seed_add(name, line, (size_t)snprintf(line, sizeof(line), "%c%s", 3, texts[i]));
	}
	seed_add("command", command, sizeof(command) - 1);
	make_file();
	memcpy(live + 1, file, HEAD);
	memcpy(live + 1 + HEAD, file + 6 * LIVE_FILE_ALIGN + SLOT, 1024);
	seed_add("live", live, sizeof(live));
	cache = images_cache_create();
	WANT(cache != NULL);
	snprintf(path, sizeof(path), "/dev/shm/braggline-view-%d", (int)getpid());
	return 0;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	switch (data[0] % 3) {
	case 0:
		check_texts(data + 1, size - 1);
		break;
	case 1:
		check_command(data + 1, size - 1);
		break;
	default:
		check_live(data + 1, size - 1);
		break;
	}
	return 0;
}
