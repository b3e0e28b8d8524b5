/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arrow/names.h"
#include "escaped_text.h"
#include "io/own_file.h"
#include "scan/growing.h"

struct scan_growing {
	int fd;
	void *map;
	uint64_t at;   /* where the next batch begins */
	bool complete; /* its writer has ended */
	bool ended;    /* and there is no further batch */
};

/* Size of the first block, which has the schema. @return 0: it is not written yet */
static uint64_t
first_block(int fd)
{
	uint8_t head[16];
	uint64_t size;
	struct stat st;

	if (pread(fd, head, sizeof(head), 0) != sizeof(head) || fstat(fd, &st) < 0)
		return 0;
	size = sizeof(head) +
		(head[12] | head[13] << 8 | head[14] << 16 | (uint64_t)head[15] << 24);
	return memcmp(head, "ARROW1\0\0", 8) == 0 && size <= (uint64_t)st.st_size ? size : 0;
}

static int
read_schema(struct scan_run *run, struct scan_file *f, enum arrow_table table, uint64_t size)
{
	const char *problem, *name;
	int ret = arrow_reader_open_memory(&f->reader, f->growing->map, size, &problem);

	if (ret < 0)
		return ret == -EBADMSG ? -EAGAIN : ret;
	f->present = true;
	arrow_reader_only(&f->reader, f->path);
	name = arrow_reader_meta(&f->reader, ARROW_META_TABLE);
	if (f->reader.schema_fault != NULL)
		return -EAGAIN;
	if (name != NULL && strcmp(name, arrow_table_name(table)) == 0)
		return scan_run_check(run, f);
	escaped_line(stderr, "%s: %s: its schema does not match the table in its name",
		program_invocation_short_name, f->path);
	return -EBADMSG;
}

int
scan_growing_open(struct scan_run *run, struct scan_file *f, enum arrow_table table)
{
	struct scan_growing *g = calloc(1, sizeof(*g));
	int ret;

	if (g == NULL)
		return -ENOMEM;
	f->growing = g;
	g->map = MAP_FAILED;
	g->fd = own_file_open_named(f->path, O_RDONLY, 0);
	ret = g->fd < 0 ? g->fd : 0;
	if (ret == 0) {
		g->at = first_block(g->fd);
		ret = g->at > 0 ? 0 : -EAGAIN;
	}
	if (ret == 0) {
		g->map = mmap(
			NULL, SCAN_GROWING_MAX, PROT_READ, MAP_SHARED | MAP_NORESERVE, g->fd, 0);
		ret = g->map != MAP_FAILED ? read_schema(run, f, table, g->at) : -errno;
	}
	if (ret < 0)
		scan_growing_close(f);
	return ret;
}

/* Looks whether the writer has renamed the file, which it does last. */
static void
look_at_name(struct scan_file *f)
{
	const size_t length = strlen(f->path) - strlen(".part");
	struct stat ours, named;
	char name[PATH_MAX];

	if (!arrow_name_is_part(f->path)) {
		f->growing->complete = true;
		return;
	}
	snprintf(name, sizeof(name), "%.*s", (int)length, f->path);
	if (fstat(f->growing->fd, &ours) < 0)
		return;
	if (stat(name, &named) == 0 && named.st_ino == ours.st_ino && named.st_dev == ours.st_dev) {
		f->path[length] = '\0';
		f->growing->complete = true;
	} else if (ours.st_nlink == 0) {
		f->growing->complete = true;
	}
}

/* Continues behind damage, as readers of complete files do. @return -EBADMSG; 0: the end */
static int
skip(struct scan_file *f)
{
	struct scan_growing *g = f->growing;
	struct arrow_read_batch b;
	uint64_t at = g->at + ARROW_BLOCK;

	if (arrow_reader_next(&f->reader, &at, &b)) {
		g->at = at;
		f->damaged++;
		return -EBADMSG;
	}
	g->ended = true;
	return 0;
}

int
scan_growing_next(struct scan_file *f)
{
	struct arrow_reader *r = &f->reader;
	struct scan_growing *g = f->growing;
	struct arrow_read_batch b;
	struct stat st;
	int ret;

	if (g->ended)
		return 0;
	/* first the name: what is written before it is then seen */
	look_at_name(f);
	if (fstat(g->fd, &st) < 0)
		return -errno;
	if ((uint64_t)st.st_size > SCAN_GROWING_MAX)
		return -EFBIG;
	r->size = st.st_size;
	r->written = st.st_size;
	if (arrow_reader_announced(r, g->at, &b) == 1) {
		ret = arrow_read_crc(r, &b);
		/* without a CRC, a batch of a file that is written could be incomplete */
		if (ret == 1 || (ret == 0 && g->complete)) {
			ret = arrow_reader_keep(r, &b);
			if (ret < 0)
				return ret;
			g->at += b.metadata_size + b.body_length;
			return 1;
		}
	}
	return g->complete ? skip(f) : 0;
}

bool
scan_growing_ended(struct scan_file *f)
{
	return f->growing != NULL && f->growing->ended;
}

void
scan_growing_close(struct scan_file *f)
{
	struct scan_growing *g = f->growing;

	if (g == NULL)
		return;
	if (f->present)
		arrow_reader_close(&f->reader);
	f->present = false;
	if (g->map != MAP_FAILED)
		munmap(g->map, SCAN_GROWING_MAX);
	if (g->fd >= 0)
		close(g->fd);
	free(g);
	f->growing = NULL;
}
