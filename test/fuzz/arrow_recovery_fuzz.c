/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Recovery of any input as an .arrow.part file: the file either stays as it is, or becomes a
 * complete file whose batches are all valid and were there before, at the same offsets. Bytes that
 * were cut off are in a quarantine file. A second recovery changes nothing. The work is bounded by
 * the size of the file.
 */

#include "seed_corpus.h"

#include "../unit/arrow/arrow_disk.h"
#include "recovery/recovery.h"

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed);

#define WANT(condition)           \
	do {                      \
		if (!(condition)) \
			abort();  \
	} while (0)

/*
 * Bytes after `end` that are no longer in the file are in the quarantine file, except those of a
 * trailer.
 */
static void
check_cut(const struct disk_file *f, uint64_t begin, uint64_t end, const uint8_t *data, size_t size,
	uint64_t trailer)
{
	const struct disk_file *q = disk_find(disk, "x.arrow.quarantine");
	uint64_t at, in;

	for (at = end; at < size && at < trailer; at++) {
		if (data[at] == 0 || (at < f->size && f->data[at] == data[at]))
			continue;
		in = begin + at - end;
		WANT(q != NULL && in < q->size && q->data[in] == data[at]);
	}
}

/* Both copies of the schema equal one that was in the input. */
static void
check_mended(const struct disk_file *f, const uint8_t *data, uint64_t half)
{
	WANT(memcmp(f->data, f->data + half, half) == 0);
	WANT(memcmp(f->data, data, half) == 0 || memcmp(f->data, data + half, half) == 0);
}

/* The file is complete and has the content that the report states, as in the input. */
static void
check(const struct disk_file *f, const struct arrow_recovery *report, const uint8_t *data,
	size_t size, uint64_t trailer)
{
	const struct arrow_read_batch *b;
	const char *problem;
	struct arrow_reader r;
	uint64_t rows = 0, end, same = 0;

	WANT(arrow_reader_open_memory(&r, f->data, f->size, &problem) == 0);
	WANT(r.complete);
	WANT(r.nb_batches == report->batches && r.nb_damage == report->damaged);
	WANT(arrow_recovery_scan(&r) == 0 && r.nb_batches == report->batches);
	end = r.begin;
	for (size_t i = 0; i < r.nb_batches; i++) {
		b = &r.batches[i];
		rows += b->rows;
		WANT(arrow_reader_crc(&r, i) == 1);
		end = b->offset + b->metadata_size + b->body_length;
		WANT(end <= size);
	}
	/* damaged parts after the last sound batch may stay, too */
	WANT(rows == report->rows && r.end >= end);
	WANT(r.end == end || r.nb_damage > 0);
	end = r.end;
	if (report->repaired) {
		same = r.begin;
		WANT(r.copy == same / 2 && r.schema_fault == NULL);
		check_mended(f, data, r.copy);
	}
	WANT(end <= size && memcmp(f->data + same, data + same, end - same) == 0);
	check_cut(f, r.begin, end, data, size, trailer);
	arrow_reader_close(&r);
}

/* Offset of a trailer that is valid. */
static uint64_t
trailer_of(const uint8_t *data, size_t size)
{
	uint64_t trailer = UINT64_MAX;
	const char *problem;
	struct arrow_reader r;

	if (arrow_reader_open_memory(&r, data, size, &problem) < 0)
		return trailer;
	if (r.complete)
		trailer = r.end;
	arrow_reader_close(&r);
	return trailer;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct arrow_recovery report, again;
	struct arrow_io_ops io;
	struct disk_file *f;
	uint64_t done, trailer;
	int ret;

	disk = disk_new(size);
	f = &disk->file[disk->nb_files++];
	strcpy(f->name, "x.arrow.part");
	disk_resize(disk, f, size);
	/* exact size, so that ASAN detects accesses past the end */
	f->data = realloc(f->data, size + (size == 0));
	f->room = size;
	memcpy(f->data, data, size);
	trailer = trailer_of(f->data, size);

	/* the file is mapped with exactly its size, or read through a window */
	io = disk_io;
	if (size > 0 && data[size / 2] % 2)
		io.read = NULL;
	ret = arrow_recover_file(&io, "/x.arrow.part", &report);
	WANT(report.looked <= arrow_recovery_limit(size) + 16 * size);
	if (report.state == ARROW_RECOVERY_FAILED) {
		WANT(ret < 0 && report.message[0] != '\0');
		WANT(f->size == size);
		WANT(report.repaired || memcmp(f->data, data, size) == 0);
	} else if (report.state == ARROW_RECOVERY_DONE) {
		WANT(ret == 0 && strcmp(f->name, "x.arrow") == 0);
		check(f, &report, data, size, trailer);
		done = f->size;
		strcpy(f->name, "x.arrow.part");
		WANT(disk_find(disk, ".x.arrow.recovery") == NULL);
		WANT(arrow_recover_file(&io, "/x.arrow.part", &again) == 0);
		WANT(again.cut == 0 && again.batches == report.batches && f->size == done);
		WANT(again.quarantined == 0 && !again.repaired);
		again.repaired = report.repaired;
		check(f, &again, data, size, trailer);
	}
	disk_free(disk);
	return 0;
}

/*
 * Half of the mutations imitate crashes and disks: zeroed sectors, exchanged blocks, a flipped bit,
 * a truncated file.
 */
size_t
LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed)
{
	uint64_t at;

	srand(seed);
	if (size < DISK_SECTOR || rand() % 2)
		return LLVMFuzzerMutate(data, size, max_size);
	if (rand() % 4 == 0)
		return rand() % size;
	for (int n = 1 + rand() % 4; n > 0; n--) {
		if (rand() % 3 == 0) {
			data[rand() % size] ^= 1 << rand() % 8;
			continue;
		}
		if (size >= 2 * ARROW_BLOCK && rand() % 3 == 0) {
			uint8_t block[ARROW_BLOCK];

			at = (uint64_t)rand() % (size / ARROW_BLOCK) * ARROW_BLOCK;
			memcpy(block, data + at, sizeof(block));
			memmove(data + at, data + (size / ARROW_BLOCK - 1) * ARROW_BLOCK,
				sizeof(block));
			memcpy(data + (size / ARROW_BLOCK - 1) * ARROW_BLOCK, block, sizeof(block));
			continue;
		}
		at = (uint64_t)rand() % (size / DISK_SECTOR) * DISK_SECTOR;
		memset(data + at, 0, rand() % 8 ? DISK_SECTOR : rand() % DISK_SECTOR);
	}
	return size;
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	const char *writer = getenv("ARROW_WRITE");
	char command[1536], path[1024];

	seed_begin(argc, argv);
	if (writer == NULL)
		return 0;
	snprintf(command, sizeof(command), "'%s' '%s' a float32 1 2 1", writer, seed_dir);
	if (system(command) != 0)
		fprintf(stderr, "no seeds from %s\n", writer);
	snprintf(path, sizeof(path), "%s/a.txt", seed_dir);
	unlink(path);
	return 0;
}
