/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What braggline-publish reads: a file of either table, with batches whose CRC was not checked.
 * Each row of images becomes messages of both formats, or is refused. Messages end where their
 * format says. Rows of frames join images.
 */

#include <sys/mman.h>

#include <msgpack.h>

/* its static functions read pixels and peaks */
#include "output.c"
#include "seed_corpus.h"
#include "series.h"

#define PIXELS_MAX (1u << 17)
#define ROWS_MAX   16
#define STEPS_MAX  64

int __wrap_arrow_reader_crc(const struct arrow_reader *r, size_t batch);
void __wrap_escaped_line(FILE *out, const char *format, ...);

#define WANT(condition)           \
	do {                      \
		if (!(condition)) \
			abort();  \
	} while (0)

/* The CRCs of bodies count as correct. */
int
__wrap_arrow_reader_crc(const struct arrow_reader *r, size_t batch)
{
	return 1;
}

/* Messages about wrong input are not printed. */
void __attribute__((format(printf, 2, 3))) __wrap_escaped_line(FILE *out, const char *format, ...)
{
}

static void
check_row(struct output *o, const struct feed_item *item)
{
	msgpack_unpacked u;
	size_t at = 0;

	if (encode_image(o, item) < 0)
		return;
	if (is_stream2(o)) {
		WANT(o->message.size > 3 && o->message.data[0] == 0xD9);
		return;
	}
	msgpack_unpacked_init(&u);
	WANT(msgpack_unpack_next(&u, (const char *)o->message.data, o->message.size, &at) ==
		MSGPACK_UNPACK_SUCCESS);
	WANT(at == o->message.size);
	msgpack_unpacked_destroy(&u);
}

static void
check_record(const struct feed_run *run, struct scan_record *record)
{
	struct output o[] = {{.kind = OUTPUT_CRYSTFEL}, {.kind = OUTPUT_STREAM2}};
	struct feed_item item = {.series = &run->series, .record = record};

	for (unsigned int i = 0; i < 2; i++) {
		for (item.row = 0; item.row < record->batch.rows && item.row < ROWS_MAX; item.row++)
			check_row(&o[i], &item);
		message_free(&o[i].message);
		free(o[i].photons);
		free(o[i].words);
	}
}

/* A batch of `frames` joins images whose numbers are 0, 1 ..., and those that it has itself. */
static void
check_rows(const struct scan_record *frames)
{
	uint64_t numbers[ROWS_MAX] = {0, 1, 2, 3, 4, 5}, first, last;
	bool wanted[ROWS_MAX] = {true, false, true, true, true, true, true};
	struct scan_record images = {.batch.rows = ROWS_MAX, .images.frame.data = numbers};
	struct rows_join j = {0};
	struct message m = {0};
	struct wire_image image = {.photons = (const int16_t[]){0}};
	const struct wire_series s = {.unique_id = "", .run = "", .rows = 1, .cols = 1};

	if (rows_range(frames, &first, &last) < 0)
		return;
	numbers[2] = first;
	numbers[3] = last;
	WANT(first <= last && rows_begin(&j, &images, wanted) == 0 && j.missing == 6);
	if (rows_add(&j, &images, wanted, frames) == 0)
		WANT(rows_get(&j, 2) != NULL && rows_get(&j, 3) != NULL && j.missing <= 4);
	WANT(rows_get(&j, 1) == NULL && rows_get(&j, ROWS_MAX) == NULL);
	image.info = rows_get(&j, 2);
	WANT(wire_crystfel(&m, &s, &image) == 0 && wire_stream2_image(&m, &s, &image) == 0);
	message_free(&m);
	rows_end(&j);
}

static void
check_frames(struct scan_header *header, int fd)
{
	uint64_t at = header->reader.begin, length = 0;
	struct scan_record *record = NULL;

	for (unsigned int i = 0; i < STEPS_MAX; i++, at += length, record = NULL) {
		if (scan_record_read(&record, header, fd, at, &length) != SCAN_RECORD_WHOLE)
			return;
		check_rows(record);
		scan_record_drop(record);
	}
}

static void
check_batches(struct scan_header *header, int fd, const struct feed_run *run)
{
	uint64_t at = header->reader.begin, length = 0;
	struct scan_record *record;

	for (unsigned int i = 0; i < STEPS_MAX; i++) {
		record = NULL;
		switch (scan_record_read(&record, header, fd, at, &length)) {
		case SCAN_RECORD_WHOLE:
			check_record(run, record);
			scan_record_drop(record);
			at += length;
			break;
		case SCAN_RECORD_PARTIAL:
			at += length;
			break;
		case SCAN_RECORD_WRONG:
			at += ARROW_BLOCK;
			break;
		default:
			return;
		}
	}
}

static const char *problem; /* of a header */

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const int fd = memfd_create("fuzz", MFD_CLOEXEC);
	struct scan_header *header = NULL;
	struct message m = {0};
	struct feed_run *run;

	WANT(fd >= 0 && write(fd, data, size) == (ssize_t)size);
	if (scan_header_read(&header, fd, "lyso_images.arrow", ARROW_IMAGES, &problem) == 0) {
		for (unsigned int raw = 0; raw < 2; raw++) {
			run = series_create(header, 1, raw, NULL);
			if (run == NULL)
				continue;
			if ((uint64_t)run->series.rows * run->series.cols <= PIXELS_MAX) {
				WANT(wire_stream2_start(&m, &run->series) == 0);
				check_batches(header, fd, run);
			}
			feed_run_drop(run);
		}
	}
	message_free(&m);
	scan_header_drop(header);
	header = NULL;
	if (scan_header_read(&header, fd, "lyso_frames.arrow", ARROW_FRAMES, &problem) == 0)
		check_frames(header, fd);
	scan_header_drop(header);
	scan_memory_trim();
	close(fd);
	return 0;
}

/* Files of the project's own writer; ARROW_WRITE is its path. */
static void
add_files(const char *writer)
{
	char command[2048];

	snprintf(command, sizeof(command),
		"'%s' '%s' a float32 1 2 1 && '%s' '%s' b int16+chunks 2 1 2 && rm -f '%s'/*.txt",
		writer, seed_dir, writer, seed_dir, seed_dir);
	if (system(command) != 0)
		fprintf(stderr, "no seeds from %s\n", writer);
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	const char *writer = getenv("ARROW_WRITE");

	seed_begin(argc, argv);
	seed_add("magic", "ARROW1\0\0", 8);
	if (writer != NULL)
		add_files(writer);
	return 0;
}
