/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * A receiver or a store: a thread that queries its telemetry socket and watches its live file, and
 * the newest replies. A source that does not exist, or has ended, is tried again every period.
 */
#ifndef SOURCE_H
#define SOURCE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "commands.h"
#include "request.h"

struct source;

struct source_config {
	char name[REQUEST_NAME_LEN];
	char socket[PATH_MAX];
	enum source_kind kind;
	unsigned int period_ms; /**< of telemetry */
	void (*changed)(void);	/**< something is new; called by the thread, without locks */
};

/** Items that change. Each has a version number that grows. */
enum source_topic {
	SOURCE_TOPIC_STATE,
	SOURCE_TOPIC_FRAME,
	SOURCE_TOPIC_REPLY, /**< + index of the command */
	SOURCE_TOPICS = SOURCE_TOPIC_REPLY + COMMANDS_MAX
};

/** Start the thread. @return NULL: out of memory, or no thread */
struct source *source_start(const struct source_config *config);

/** Stop the thread. The newest replies remain. NULL is allowed. */
void source_stop(struct source *s);

/** Free the memory, after source_stop(). NULL is allowed. */
void source_free(struct source *s);

const struct source_config *source_get_config(const struct source *s);

/** @return true while the process answers */
bool source_is_up(struct source *s);

/**
 * The newest reply to a command.
 * @param index   in commands_of()
 * @param age_ms  out: since it was received
 * @return text of the socket, to be freed; NULL: the source is down, or has not answered yet
 */
char *source_reply(struct source *s, size_t index, uint64_t *age_ms);

/** @return path of the live file, to be freed; NULL: the source is down, or has none */
char *source_live(struct source *s);

/** @return version of a topic; 0: no text */
uint64_t source_version(struct source *s, unsigned int topic);

/**
 * Describe a topic as JSON: `{"source": ..., ...}`.
 * @param version  out: version of the text
 * @return text, to be freed; NULL: no text, or out of memory
 */
char *source_topic_text(struct source *s, unsigned int topic, uint64_t *version);

/** Name of the topic as type of an event. */
const char *source_topic_name(unsigned int topic);

#endif /* SOURCE_H */
