/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Checks of HTTP requests that depend only on the text of the request. The functions have no state.
 * Any thread may call them.
 */
#ifndef REQUEST_H
#define REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REQUEST_NAME_LEN 32 /**< bytes of a source's name with its terminating zero */

/** What a path names. */
enum request_target {
	REQUEST_NOT_FOUND,
	REQUEST_SOURCES,   /**< /api/v1/sources */
	REQUEST_SOURCE,	   /**< /api/v1/sources/{source} */
	REQUEST_TELEMETRY, /**< .../telemetry */
	REQUEST_COMMAND,   /**< .../command */
	REQUEST_FRAME,	   /**< .../frame */
	REQUEST_IMAGE,	   /**< .../image */
	REQUEST_GEOMETRY,  /**< .../geometry */
	REQUEST_PLACES,	   /**< .../places */
	REQUEST_EVENTS,	   /**< /api/v1/events */
	REQUEST_RUNS,	   /**< /api/v1/runs */
	REQUEST_RUN_FILE,  /**< /api/v1/runs/{directory}/{file}, see request_run_file() */
};

/** Planes of .../image. */
enum request_plane {
	REQUEST_PLANE_NONE, /**< not a plane */
	REQUEST_PLANE_FRAME,
	REQUEST_PLANE_MAXIMUM,
	REQUEST_PLANE_MEAN,
	REQUEST_PLANE_MASK,
};

/** @param name  out: the name of the source, "" if the target has none */
enum request_target request_target(const char *path, char name[REQUEST_NAME_LEN]);

/** Letters, digits, `_`, `-` and `.`; not "." and not "..". */
bool request_is_name(const char *name);

/** @param plane  value of the parameter; NULL: absent, which is the frame */
enum request_plane request_plane(const char *plane);

/**
 * Check the header Host of a server that listens to a loopback address without a token: localhost,
 * [::1], or an address in 127.0.0.0/8, with or without a port. A page of another site whose name
 * resolves to 127.0.0.1 (DNS rebinding) sends its own name.
 * @param host  NULL: absent
 */
bool request_is_local_host(const char *host);

/**
 * Check the header Sec-Fetch-Site (W3C Fetch Metadata), in which browsers name the origin of a
 * request: only a page of this server, or the user, is accepted. @param site  NULL: absent, no
 * browser
 */
bool request_is_same_site(const char *site);

/** @return the token of a header `Authorization: Bearer TOKEN`; NULL: there is none */
const char *request_bearer(const char *authorization);

/** @return true if an entry of If-None-Match is this tag, or it is `*` */
bool request_matches(const char *if_none_match, const char *etag);

/**
 * Return true if a content type is application/json, with or without parameters.
 * @param type  NULL: absent
 */
bool request_is_json(const char *type);

/** A rectangle of the picture, in cells of bin x bin pixels. */
struct request_window {
	uint32_t x, y, width, height; /**< pixels of the picture */
	uint32_t bin;		      /**< 1 ... REQUEST_BIN_MAX */
};

#define REQUEST_BIN_MAX	 64
#define REQUEST_SIDE_MAX 65536 /**< of a picture */

/** Read "X,Y,WIDTH,HEIGHT,BIN". @return 0; -EINVAL */
int request_window(const char *text, struct request_window *w);

#define REQUEST_RUN_LEN 256 /**< bytes of a file's name with its 0 */

/** A file of a run. */
struct request_run {
	unsigned int folder;	   /**< number of --runs, from 0 */
	char sub[REQUEST_RUN_LEN]; /**< subfolder; "": none */
	char file[REQUEST_RUN_LEN];
};

/** As request_is_name(), with up to 255 characters, of which the first is not a dot. */
bool request_is_run_name(const char *name);

/**
 * Read /api/v1/runs/FOLDER/FILE or /api/v1/runs/FOLDER:SUB/FILE, where FOLDER is one digit.
 * @return 0; -EINVAL: another path, and the content of `run` is not defined
 */
int request_run_file(const char *path, struct request_run *run);

/** Part of a file. */
enum request_range {
	REQUEST_RANGE_WHOLE, /**< no header, or one that may be ignored (RFC 9110, 14.2) */
	REQUEST_RANGE_PART,
	REQUEST_RANGE_OUTSIDE, /**< no byte of the file */
};

/**
 * Read the header Range.
 * @param range  NULL: absent. Only one range of bytes is supported
 * @param size   bytes of the file
 * @param begin, length  out
 */
enum request_range request_range(
	const char *range, uint64_t size, uint64_t *begin, uint64_t *length);

#define REQUEST_COMMAND_LEN 1024

/** A command and its parameters, as they are sent to the socket. */
struct request_command {
	char path[REQUEST_COMMAND_LEN];
	char text[REQUEST_COMMAND_LEN]; /**< path, and parameters after a comma */
};

/**
 * Read the body of a command: {"command": PATH, "parameters": TEXT}.
 * @param why  out: what is wrong
 * @return 0; -EINVAL: not such an object, another key, a control character, or too long
 */
int request_command(const void *body, size_t size, struct request_command *c, const char **why);

#endif /* REQUEST_H */
