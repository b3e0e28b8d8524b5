/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fake libcuda.so.1 and libgdrapi.so.2: device memory is host memory, calls are counted, and any
 * function can be made to fail. In a test that links them, their sonames are already loaded when
 * the driver opens them.
 */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	FAKE_DEVICES = 2,
	FAKE_SYMBOLS = 29, /* that the driver requests */
};

struct fake_cuda {
	/* set by the test */
	const char *fail;	/* name of a function to fail; NULL: none */
	int fail_with;		/* CUresult */
	unsigned int fail_skip; /* number of its calls that succeed first */
	const char *hide;	/* symbol that cuGetProcAddress does not find */
	int hide_status;	/* ... and the symbolStatus of that, with return value success */
	int ordering;		/* CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING */
	int flush_options;
	int dmabuf;
	uintptr_t host_skew; /* difference of device pointers of registered memory */
	bool gdr_absent;     /* gdr_open fails */
	int gdr_map_error;

	/* counted by the fakes */
	unsigned int asked; /* requested symbols; for each the requested version */
	struct {
		char name[48];
		int version;
	} symbols[64];
	unsigned int contexts; /* references on primary contexts */
	unsigned int pushes;
	unsigned int allocated;	 /* live allocations */
	unsigned int syncs;	 /* SYNC_MEMOPS set */
	unsigned int registered; /* live cuMemHostRegister */
	unsigned int registers;	 /* total number */
	unsigned int flushes;
	unsigned int mapped; /* live GDRCopy mappings */
	unsigned int pinned;
	unsigned int gdr_inside;   /* threads in calls of GDRCopy, which has no lock */
	unsigned int gdr_overlaps; /* calls of it while another was inside */
	unsigned int streams;	   /* existing */
	unsigned int copies;	   /* not yet synchronized */
};

struct fake_cuda *fake_cuda(void);

/* Number of contexts on this thread's stack, and the top one (0: none). */
unsigned int fake_cuda_depth(void);
uintptr_t fake_cuda_current(void);
/* Push another context, as an application that leaves one current. */
void fake_cuda_push_foreign(void);
void fake_cuda_pop_foreign(void);

/* cuMemHostRegister() as a program may call it without the driver. */
int fake_cuda_register_foreign(void *ptr, size_t size);
int fake_cuda_unregister_foreign(void *ptr);

/*
 * Exact version of a symbol in cudaTypedefs.h for which the driver is written; 0: unknown symbol.
 */
int fake_cuda_version(const char *name);

/* Does nothing: a program that calls it loads libgdrapi.so.2 at its start. */
void fake_gdrapi(void);

#endif /* FAKE_CUDA_H */
