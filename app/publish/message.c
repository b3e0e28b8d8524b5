/* SPDX-License-Identifier: BSD-3-Clause */

#include <string.h>

#include "scan/memory.h"
#include "message.h"

#define ROOM_MIN 4096

uint8_t *
message_room(struct message *m, size_t size)
{
	size_t room = m->size + size;
	uint8_t *data;

	if (m->failed || size > SIZE_MAX / 4 - m->size) {
		m->failed = true;
		return NULL;
	}
	if (room > m->room) {
		room = room > 2 * m->room ? room : 2 * m->room;
		data = scan_memory_get(room > ROOM_MIN ? room : ROOM_MIN);
		if (data == NULL) {
			m->failed = true;
			return NULL;
		}
		if (m->size > 0)
			memcpy(data, m->data, m->size);
		scan_memory_put(m->data);
		m->data = data;
		m->room = scan_memory_size(data);
	}
	return m->data + m->size;
}

void
message_put(struct message *m, const void *data, size_t size)
{
	uint8_t *to = message_room(m, size);

	if (to == NULL)
		return;
	if (size > 0)
		memcpy(to, data, size);
	m->size += size;
}

void
message_clear(struct message *m)
{
	m->size = 0;
	m->failed = false;
}

void
message_free(struct message *m)
{
	scan_memory_put(m->data);
	*m = (struct message){0};
}
