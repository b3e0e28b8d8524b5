/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * A growing buffer for a message, in memory of scan_memory_get(). If memory cannot be allocated,
 * `failed` is set, and nothing is added from then on. One thread.
 */
#ifndef PUBLISH_MESSAGE_H
#define PUBLISH_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Zero-initialized: empty. */
struct message {
	uint8_t *data;
	size_t size, room;
	bool failed;
};

/** Make room after the message. @return address of the room; NULL: out of memory */
uint8_t *message_room(struct message *m, size_t size);

void message_put(struct message *m, const void *data, size_t size);

/** Empty a message, and keep its memory. */
void message_clear(struct message *m);

void message_free(struct message *m);

#endif /* PUBLISH_MESSAGE_H */
