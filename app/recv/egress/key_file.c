/* SPDX-License-Identifier: BSD-3-Clause */

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

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
key_file_open(struct key_file **key_file, const char *path, char message[PATH_MAX])
{
	struct key_file *k = calloc(1, sizeof(*k));
	int ret;

	if (k == NULL) {
		snprintf(message, PATH_MAX, "no memory for the key");
		return -ENOMEM;
	}
	k->thread.work = read_key;
	k->thread.arg = k;
	snprintf(k->path, sizeof(k->path), "%s", path);
	ret = xfer_key_read(&k->key, path, message);
	if (ret < 0)
		free(k);
	else
		*key_file = k;
	return ret;
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

/* file_thread_stop() takes seconds; 0: no limit */
static_assert(KEY_FILE_MS >= 1000, "limit of the wait at the end");

void
key_file_close(struct key_file *k)
{
	if (k == NULL)
		return;
	xfer_key_forget(&k->key);
	if (!file_thread_stop(&k->thread, KEY_FILE_MS / 1000)) {
		LOG(WARNING, "key file %s is still being read (check its file system)\n", k->path);
		return;
	}
	xfer_key_forget(&k->found);
	free(k);
}
