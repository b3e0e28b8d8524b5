/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Seeds that are made by code: a folder in TMPDIR that is libFuzzer's corpus and is removed at
 * exit. With FUZZ_CORPUS=DIR, new inputs are kept in DIR/NAME (of NAME_fuzz), and used in the next
 * run. Call it from LLVMFuzzerInitialize(), which may change the arguments.
 */
#ifndef SEED_CORPUS_H
#define SEED_CORPUS_H

#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char seed_dir[512];
static pid_t seed_owner;

static inline void
seed_remove(void)
{
	char path[1024];
	struct dirent *e;
	DIR *dir;

	if (getpid() != seed_owner)
		return; /* libFuzzer forks for some of its modes */
	dir = opendir(seed_dir);
	while (dir != NULL && (e = readdir(dir)) != NULL) {
		snprintf(path, sizeof(path), "%s/%s", seed_dir, e->d_name);
		if (e->d_name[0] != '.')
			unlink(path);
	}
	if (dir != NULL)
		closedir(dir);
	rmdir(seed_dir);
}

/** The folder of this target below FUZZ_CORPUS. @return NULL: inputs are not kept */
static inline char *
seed_kept(const char *program)
{
	static char kept[512];
	const char *dir = getenv("FUZZ_CORPUS"), *name = strrchr(program, '/');
	size_t length;

	if (dir == NULL || *dir == '\0')
		return NULL;
	name = name != NULL ? name + 1 : program;
	length = strlen(name);
	if (length > 5 && strcmp(name + length - 5, "_fuzz") == 0)
		length -= 5;
	snprintf(kept, sizeof(kept), "%s/%.*s", dir, (int)length, name);
	mkdir(dir, 0777);
	if (mkdir(kept, 0777) != 0 && errno != EEXIST) {
		fprintf(stderr, "FUZZ_CORPUS: %s: cannot be made: %s\n", kept, strerror(errno));
		exit(1);
	}
	return kept;
}

/** Is libFuzzer called to replay inputs? It takes either files or folders. */
static inline int
seed_has_files(int argc, char **argv)
{
	struct stat st;

	for (int i = 1; i < argc; i++)
		if (argv[i][0] != '-' && stat(argv[i], &st) == 0 && S_ISREG(st.st_mode))
			return 1;
	return 0;
}

/** Append an empty corpus as the last argument. */
static inline void
seed_begin(int *argc, char ***argv)
{
	const char *tmp = getenv("TMPDIR");
	char **more = calloc(*argc + 3, sizeof(*more));
	char *kept = seed_kept((*argv)[0]);

	snprintf(
		seed_dir, sizeof(seed_dir), "%s/braggline-fuzz-XXXXXX", tmp != NULL ? tmp : "/tmp");
	if (more == NULL || mkdtemp(seed_dir) == NULL)
		abort();
	seed_owner = getpid();
	atexit(seed_remove);
	memcpy(more, *argv, *argc * sizeof(*more));
	*argv = more;
	if (seed_has_files(*argc, more))
		return;
	/* libFuzzer writes new inputs to the first folder */
	if (kept != NULL)
		more[(*argc)++] = kept;
	more[(*argc)++] = seed_dir;
}

static inline void
seed_add(const char *name, const void *bytes, size_t size)
{
	char path[1024];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", seed_dir, name);
	f = fopen(path, "wb");
	if (f == NULL || fwrite(bytes, 1, size, f) != size)
		abort();
	fclose(f);
}

#endif /* SEED_CORPUS_H */
