/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reading a store's files: loads runs into memory of the host or of a GPU, as fast as the disk
 * allows, and verifies the CRC of every body.
 */

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recovery/damage.h"
#include "arrow/names.h"
#include "eal/end.h"
#include "io/body_memory.h"
#include "io/cufile.h"
#include "run_load.h"

struct load_arguments {
	struct run_load_config config;
	const char *device; /* EAL's --vdev */
};

static void
usage(FILE *out)
{
	fprintf(out,
		"Usage: store_load_bench [options] PATH...\n"
		"\n"
		"Reads runs (directories or single files) into memory, checks the CRC-32C of\n"
		"every batch and prints the throughput.\n"
		"\n"
		"  -g, --gpu DEVICE   read into memory of this GPU, given as for EAL's --vdev:\n"
		"                     gpu_cuda0,device=0. Uses cuFile, and prints its mode\n"
		"  -t, --threads N    number of slices read in parallel (%u)\n"
		"  -s, --slice KIB    size of a read (4096)\n"
		"  -n, --no-check     do not check CRCs\n"
		"  -h, --help         print this help and exit\n"
		"\n"
		"Exit status: 0: all batches read and valid; 1: not all; 2: invalid command\n"
		"line.\n",
		SLICE_POOL_THREADS);
}

/* Parse a number from 1 to `most`. @return 0: invalid; the error was reported */
static unsigned int
number(const char *option, const char *text, unsigned int most)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	if (*end == '\0' && n >= 1 && n <= most)
		return n;
	fprintf(stderr, "store_load_bench: %s: found '%s', expected 1 to %u\n", option, text, most);
	return 0;
}

/* @return 0: continue; > 0: exit with success; < 0: invalid arguments */
static int
parse(struct load_arguments *a, int argc, char **argv)
{
	static const struct option options[] = {
		{"gpu", required_argument, NULL, 'g'},
		{"threads", required_argument, NULL, 't'},
		{"slice", required_argument, NULL, 's'},
		{"no-check", no_argument, NULL, 'n'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	int option;

	while ((option = getopt_long(argc, argv, "g:t:s:nh", options, NULL)) != -1) {
		switch (option) {
		case 'g':
			a->device = optarg;
			break;
		case 't':
			a->config.threads = number("--threads", optarg, SLICE_POOL_THREADS_MAX);
			if (a->config.threads == 0)
				return -1;
			break;
		case 's':
			a->config.slice = number("--slice", optarg, 1 << 20) * 1024;
			if (a->config.slice == 0)
				return -1;
			break;
		case 'n':
			a->config.unchecked = true;
			break;
		case 'h':
			usage(stdout);
			return 1;
		default:
			return -1;
		}
	}
	if (optind < argc)
		return 0;
	usage(stderr);
	return -1;
}

static int
load_begin_gpu(struct load_arguments *a)
{
	int ret = run_load_gpu(a->device, &a->config.gpu);

	if (ret < 0)
		fprintf(stderr, "store_load_bench: %s: %s\n", a->device, strerror(-ret));
	return ret;
}

static int
load_open_cufile(struct load_arguments *a, const char *path)
{
	const struct cufile_info *info;
	char message[PATH_MAX], directory[PATH_MAX];
	char *slash;

	/* all files of a directory are on one disk, so one cuFile mode is chosen for all */
	snprintf(directory, sizeof(directory), "%s", path);
	slash = arrow_name_is_complete(path) || arrow_name_is_part(path) ? strrchr(directory, '/')
									 : NULL;
	if (slash != NULL)
		*slash = '\0';
	if (cufile_open(&a->config.cufile, a->config.gpu, directory, CUFILE_PROC, message) < 0) {
		fprintf(stderr, "store_load_bench: %s\n", message);
		return -1;
	}
	info = cufile_info_get(a->config.cufile);
	printf("cuFile: %s%s: %s\n", cufile_mode_name(info->mode), cufile_mode_caveat(info->mode),
		info->proof);
	return 0;
}

static void
report(const char *path, const struct run_load *l)
{
	const struct run_load_file *f;
	char text[ARROW_DAMAGE_TEXT];
	size_t i, k;

	printf("%s: %zu files, %" PRIu64 " batches, %" PRIu64 " rows, %.3f GB into memory of %s\n",
		path, l->nb_files, l->batches, l->rows, l->bytes * 1e-9,
		body_memory_name(l->config.gpu));
	printf("  %u threads, slices of %u KiB, %s\n", l->config.threads, l->config.slice >> 10,
		l->direct ? "O_DIRECT" : "through the page cache");
	printf("  %.3f s, %.2f GB/s\n", l->seconds, l->bytes / l->seconds * 1e-9);
	for (i = 0; i < l->nb_files; i++) {
		f = &l->file[i];
		if (!f->reader.complete)
			printf("  %s: %s\n", f->path, f->reader.problem);
		if (f->damaged > 0)
			printf("  %s: %" PRIu64 " of %zu batches are damaged\n", f->path,
				f->damaged, f->reader.nb_batches);
		for (k = 0; k < f->reader.nb_damage; k++) {
			arrow_damage_text(&f->reader, k, text);
			printf("  %s: %s\n", f->path, text);
		}
	}
	if (l->config.unchecked)
		printf("  CRC-32C: not checked\n");
	else
		printf("  CRC-32C: %" PRIu64 " right, %" PRIu64 " wrong, %" PRIu64 " without\n",
			l->batches - l->damaged - l->unchecked, l->damaged, l->unchecked);
}

static int
load_path(const struct load_arguments *a, const char *path)
{
	char message[PATH_MAX];
	uint64_t left_out = 0;
	struct run_load l;
	size_t i;
	int ret;

	ret = run_load(&l, &a->config, path, message);
	if (ret < 0)
		fprintf(stderr, "store_load_bench: %s\n", message);
	else
		report(path, &l);
	for (i = 0; i < l.nb_files; i++)
		left_out += l.file[i].reader.nb_damage;
	ret = ret < 0 || l.damaged + left_out > 0 ? EXIT_FAILURE : EXIT_SUCCESS;
	run_load_free(&l);
	return ret;
}

int
main(int argc, char **argv)
{
	struct load_arguments a = {.config.gpu = -1};
	int i, ret, status = EXIT_SUCCESS;

	ret = parse(&a, argc, argv);
	if (ret != 0)
		return ret > 0 ? EXIT_SUCCESS : 2;
	i = optind;
	if (a.device != NULL &&
		(load_begin_gpu(&a) < 0 ||
			(!body_memory_is_host(a.config.gpu) && load_open_cufile(&a, argv[i]) < 0)))
		return EXIT_FAILURE;
	for (; i < argc; i++) {
		if (load_path(&a, argv[i]) != EXIT_SUCCESS)
			status = EXIT_FAILURE;
	}
	cufile_close(a.config.cufile);
	if (a.device != NULL)
		eal_end();
	return status;
}
