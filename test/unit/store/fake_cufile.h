/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A fake libcufile.so.0 over the device memory of fake_cuda. It refuses the calls that cuFile
 * refuses. The test or the environment chooses the data path that it reports.
 */
#ifndef FAKE_CUFILE_H
#define FAKE_CUFILE_H

#include <stdbool.h>

enum fake_cufile_way {
	FAKE_CUFILE_COMPAT,  /* works only if compatibility mode is allowed */
	FAKE_CUFILE_NVFS,    /* nvidia-fs, with counters */
	FAKE_CUFILE_P2P,     /* peer-to-peer DMA, reported by the properties */
	FAKE_CUFILE_SILENT,  /* works, and reports nothing */
	FAKE_CUFILE_HEEDLESS /* compatibility mode, even if it is forbidden */
};

struct fake_cufile {
	/* set by the test; the variables FAKE_CUFILE_WAY and FAKE_CUFILE_STATS override it */
	enum fake_cufile_way way;
	const char *stats;    /* path of the file of counters */
	int fail_register;    /* error code of cuFileHandleRegister */
	int fail_write;	      /* error code of cuFileWrite: 5000 + n, or 1 for errno = EIO */
	unsigned int shorten; /* number of calls that transfer half of the bytes */

	/* counters */
	unsigned int opened;
	unsigned int files; /* registered now */
	unsigned int memory;
	unsigned int writes;
	unsigned int reads;
	unsigned int slow; /* calls not aligned to 4096 bytes: cuFile copies their data */
	/* calls that cuFile refuses: no CUDA context, or memory that is not registered */
	unsigned int wrong;
};

struct fake_cufile *fake_cufile(void);

#endif /* FAKE_CUFILE_H */
