/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Log messages of a source file. Several files may register the same name: they share its level.
 */
#ifndef LOG_H
#define LOG_H

#include <rte_common.h>
#include <rte_log.h>

/**
 * Register the log type `braggline.NAME`, once in a source file, and the word that precedes its
 * messages. Its level is NOTICE, unless EAL's --log-level has another one.
 */
#define LOG_REGISTER(name, word)                                                                 \
	static const char log_word[] = word;                                                     \
	static int log_type;                                                                     \
	RTE_INIT(log_register)                                                                   \
	{                                                                                        \
		log_type =                                                                       \
			rte_log_register_type_and_pick_level("braggline." name, RTE_LOG_NOTICE); \
		if (log_type < 0)                                                                \
			log_type = RTE_LOGTYPE_EAL;                                              \
	}

/** Log a message. @param level  ERR, WARNING, NOTICE, INFO, DEBUG. @param format  ends with \n */
#define LOG(level, format, ...) LOG_AT(RTE_LOG_##level, format, ##__VA_ARGS__)

/** The same, with a level that is computed: RTE_LOG_ERR and so on. */
#define LOG_AT(level, format, ...) rte_log(level, log_type, "%s: " format, log_word, ##__VA_ARGS__)

#endif /* LOG_H */
