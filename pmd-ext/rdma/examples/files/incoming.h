/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDMA_TOOL_INCOMING_H
#define RDMA_TOOL_INCOMING_H

/**
 * @file
 * Files of a directory, made from the packets of a stream. A file has the name .NAME.part until it
 * is complete, has the right CRC-32C, and is durable. It then replaces a regular file of the same
 * name, but no other kind of object.
 */

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct incoming {
	int folder;	/* descriptor */
	int fd;		/* descriptor of the incomplete file; -1: none */
	uint32_t files; /**< complete files */
	uint64_t bytes; /**< bytes received, of all files so far */
	bool done;	/**< all files of the sender are complete */
	bool begun;	/**< a packet has arrived */
	uint64_t run;	/**< run of the sender; differs after its restart */
	uint64_t lost;	/**< lost packets of the run; the rest of the run is then useless */
	char name[NAME_MAX + 1];
	uint64_t size;	  /**< bytes of the incomplete file */
	uint64_t written; /**< bytes of the incomplete file that are written */
	uint32_t crc;
	char message[PATH_MAX]; /**< after an error */
};

/** @return 0; -EBUSY: another process uses the directory; -errno; `message` is set */
int incoming_open(struct incoming *in, const char *directory);

/**
 * Check the position of a packet in the stream, before incoming_take(). A new run begins again with
 * the first file. After a loss, packets are skipped until a new run begins, as after a restart of
 * the sender. incoming_lost() reports the loss if no new run begins.
 * @param lost packets before this one that are lost permanently
 * @return 1: take it; 0: skip it; -ESTALE: it is not the first one of the run; `message` is set
 */
int incoming_place(struct incoming *in, uint64_t run, uint64_t sequence, uint64_t lost);

/**
 * Check whether the run on which the stream continues has lost packets.
 * @param run of the membership
 * @return 0; -EIO: `message` is set
 */
int incoming_lost(struct incoming *in, uint64_t run);

/**
 * Take a packet.
 * @return 0; -EPROTO: the packet is not the next one; -EILSEQ: wrong CRC; -EEXIST: another kind of
 *   object has this name; -errno; `message` is set
 */
int incoming_take(struct incoming *in, const uint8_t *packet, size_t length);

/** Forget the files so far, and remove an incomplete one: the sender begins again. */
void incoming_restart(struct incoming *in);

/** Close, and remove an incomplete file. */
void incoming_close(struct incoming *in);

#endif
