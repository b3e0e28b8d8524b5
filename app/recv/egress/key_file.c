/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>

#include "egress/key_file.h"
#include "log.h"

LOG_REGISTER("egress", "egress");

static int
read_key(void *arg)
{
	struct key_file *k = arg;

	return xfer_key_read(&k->found, k->path, k->message);
}

int
key_file_open(struct key_file *k, const char *path, char message[PATH_MAX])
{
	k->thread.work = read_key;
	k->thread.arg = k;
	k->path = path;
	return xfer_key_read(&k->key, path, message);
}

int
key_file_start(struct key_file *k, const cpu_set_t *cpus)
{
	return file_thread_start(&k->thread, "egress key", cpus);
}

uint64_t
key_file_ask(struct key_file *k)
{
	/* one that has begun may have read the file already */
	k->asked = k->begun + 1;
	return k->asked;
}

static void
end_reading(struct key_file *k, int result)
{
	k->ended = k->begun;
	k->late = false;
	if (result == 0) {
		k->key = k->found;
		k->wrong = false;
	} else if (!k->wrong) {
		LOG(ERR, "%s; keeping the key read before\n", k->message);
		k->wrong = true;
	}
	xfer_key_forget(&k->found);
}

bool
key_file_is_ready(struct key_file *k, uint64_t number, uint64_t now)
{
	int result;

	if (k->ended == k->begun && k->begun < k->asked) {
		k->begun++;
		k->begun_at = now;
		file_thread_begin(&k->thread);
	}
	if (k->ended < k->begun) {
		result = file_thread_result(&k->thread);
		if (result != -EINPROGRESS)
			end_reading(k, result);
	}
	if (k->ended >= number)
		return true;
	if (k->ended == k->begun || now < k->begun_at + KEY_FILE_MS)
		return false;
	if (!k->late)
		LOG(ERR,
			"key file %s has not been read for %u ms; keeping the key read before "
			"(check its file system)\n",
			k->path, KEY_FILE_MS);
	k->late = true;
	return true;
}

void
key_file_close(struct key_file *k)
{
	file_thread_stop(&k->thread);
	xfer_key_forget(&k->key);
	xfer_key_forget(&k->found);
}
