/* SPDX-License-Identifier: BSD-3-Clause */
/** @file Limits of the work and the memory that clients can use. README.rst explains them. */
#ifndef BOUNDS_H
#define BOUNDS_H

#define LIMIT_SOURCES	   16	     /**< receivers and stores */
#define LIMIT_CONNECTIONS  64	     /**< of all clients */
#define LIMIT_PER_ADDRESS  32	     /**< of one address */
#define LIMIT_STREAMS	   16	     /**< connections that receive events */
#define LIMIT_IMAGES	   8	     /**< images being sent */
#define LIMIT_HEAD	   16384     /**< bytes of a request without its body */
#define LIMIT_BODY	   2048	     /**< bytes of the body of a command */
#define LIMIT_REQUEST_S	   5	     /**< until a request is complete */
#define LIMIT_IDLE_S	   30	     /**< without any progress */
#define LIMIT_IMAGE_S	   60	     /**< until an image is sent */
#define LIMIT_REPLY	   (1 << 20) /**< bytes of a reply of a telemetry socket */
#define LIMIT_TELEMETRY_MS 2000	     /**< to wait for such a reply */
#define LIMIT_COMMAND_MS   60000     /**< to wait for the reply to a command */
/** bytes of a command with its parameters: DPDK reads at most 1,023 */
#define LIMIT_COMMAND	   1023
#define LIMIT_PIXELS	   (1u << 26)	       /**< of an image: 64 Mpixel */
#define LIMIT_RUN_FOLDERS  8		       /**< folders of runs */
#define LIMIT_RUN_ENTRIES  100000	       /**< files of runs that are examined */
#define LIMIT_RUNS	   1000		       /**< runs in the list, the newest ones */
#define LIMIT_RUN_FILES	   10000	       /**< files of runs in the list */
#define LIMIT_COUNTED	   (UINT64_C(1) << 40) /**< bytes of an Arrow file whose rows are counted */
#define LIMIT_DOWNLOADS	   4		       /**< files being sent */
#define LIMIT_DOWNLOAD_BPS 1000000u /**< a client that is slower on average is disconnected */

#endif /* BOUNDS_H */
