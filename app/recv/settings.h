/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Settings of braggline-recv. The configuration file is read and checked once. conf/ has examples,
 * conf/jungfrau-4m.ini with all sections. README.rst has the table of keys.
 */
#ifndef SETTINGS_H
#define SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_ethdev.h>

#include "builder/command.h"
#include "calib/calibration.h"
#include "geometry_settings.h"
#include "ingest/card.h"
#include "peak_settings.h"
#include "radial_settings.h"
#include "source_settings.h"

struct config;
struct egress_settings;

#define SETTINGS_PORTS_MAX  16
#define SETTINGS_LCORES_MAX 128
#define SETTINGS_RDMA_LEN   192

enum rx_mode {
	RX_MODE_AUTO,	/**< split if the port supports it */
	RX_MODE_SPLIT,	/**< headers in host memory, pixels in the payload pool */
	RX_MODE_SINGLE, /**< whole packets in the payload pool */
};

enum rx_steering {
	RX_STEERING_AUTO,     /**< flow rules if the port supports them */
	RX_STEERING_FLOW,     /**< one queue per RX lcore; rte_flow steers streams to queues */
	RX_STEERING_SOFTWARE, /**< one queue; RX lcores hand packets over */
};

enum payload_pool {
	PAYLOAD_AUTO,	   /**< by reference for net_replay, otherwise memory */
	PAYLOAD_MEMORY,	   /**< elements of GPU-visible memory */
	PAYLOAD_REFERENCE, /**< mbufs without data room: the driver attaches its own buffers */
};

enum idle_policy {
	IDLE_AUTO,  /**< yield if lcores share CPUs, else pause */
	IDLE_POLL,  /**< poll without a pause */
	IDLE_PAUSE, /**< one CPU pause per iteration */
	IDLE_YIELD, /**< yield the CPU */
};

enum backpressure {
	BACKPRESSURE_AUTO, /**< wait if all ports are replays, otherwise refuse */
	BACKPRESSURE_WAIT,
	BACKPRESSURE_REFUSE,
};

enum incomplete_policy {
	INCOMPLETE_KEEP, /**< process with the missing pixels masked */
	INCOMPLETE_DROP, /**< drop the image; write only the row in `frames` */
};

enum packets_way {
	/** GPU memory if a port can write to it and kernels can read it, otherwise pinned */
	PACKETS_AUTO,
	PACKETS_PINNED, /**< host memory that the GPU reads over the bus */
	PACKETS_DEVICE, /**< memory of the GPU */
};

struct port_settings {
	char device[RTE_ETH_NAME_MAX_LEN]; /**< EAL device name, or a port number */
	uint32_t streams[DETECTOR_STREAMS_MAX];
	uint32_t nb_streams;
	bool all_streams; /**< `streams = auto` */
	enum rx_mode mode;
	enum rx_steering steering;
	enum payload_pool payload;
	uint32_t descriptors; /**< descriptors of an RX queue */
	uint32_t mtu;
	/**
	 * RoCE: the keys of rdma_dev_open() other than the port, from `device = roce:port=...,...`;
	 * or the name of an adapter
	 */
	char rdma[SETTINGS_RDMA_LEN];
	bool adapter; /**< `device = verbs:...`: there is no ethdev */
};

/** Where the messages of a detector that speaks RoCEv2 arrive. */
enum delivery {
	DELIVERY_AUTO,	    /**< reference for `roce:` devices, memory for `verbs:` devices */
	DELIVERY_REFERENCE, /**< messages stay in mbufs; software RoCE only */
	/** the device, or for multicast streams the RX role, writes them into rings; not `send` */
	DELIVERY_MEMORY,
};

/** How a detector that speaks RoCEv2 sends, section [ingest]. */
struct ingest_settings {
	enum ingest_transport transport; /**< [detector] transport */
	enum delivery delivery;		 /**< not DELIVERY_AUTO after settings_read() */
	uint32_t mtu;			 /**< path MTU, bytes */
	uint32_t qpn;			 /**< of stream 0, the others follow; 0: any */
	uint32_t rkey;			 /**< write; 0: random */
	uint32_t slots;			 /**< in memory: slots of a stream's ring */
	/** port of the CM; 0: no connections; multicast: of the sender's service for stream 0 */
	uint16_t service;
	bool check_icrc;  /**< `roce`: check the invariant CRC of packets */
	const char *card; /**< file that the card is written to; NULL: none */
	/* multicast */
	uint32_t sender;      /**< IPv4 address of the detector, host byte order */
	uint32_t group;	      /**< of stream 0, the others follow; host byte order */
	uint32_t buffers;     /**< receive buffers of a stream */
	uint32_t reads;	      /**< connections of a stream for READ */
	const char *identity; /**< name in the sender's keyring; NULL: there is no proof */
	const char *key;      /**< file with its key */
};

/** `[output] compress`. */
enum settings_compress {
	COMPRESS_AUTO, /**< with host gangs */
	COMPRESS_YES,
	COMPRESS_NO
};

struct settings {
	struct detector detector;
	uint32_t udp_port; /**< of stream 0; stream s uses udp_port + s */
	struct source_settings sources;
	struct ingest_settings ingest;

	struct port_settings ports[SETTINGS_PORTS_MAX];
	uint32_t nb_ports;

	uint32_t rx_lcores;    /**< number of RX roles */
	uint32_t gangs;	       /**< 0: not set, until placement_choose() */
	uint32_t gang_workers; /**< host gangs: polling roles per gang; 0: all remaining lcores */
	uint32_t rx_map[SETTINGS_LCORES_MAX], nb_rx_map; /**< lcore ids; none: automatic */
	uint32_t builder_map[1], nb_builder_map;
	uint32_t egress_map[1], nb_egress_map;
	/** lcore ids; none: the writer compresses */
	uint32_t compress_map[SETTINGS_LCORES_MAX], nb_compress_map;
	const struct egress_settings *egress; /**< section [egress] */
	uint32_t gang_map[SETTINGS_LCORES_MAX], nb_gang_map;
	enum idle_policy idle;

	uint32_t slots;
	uint32_t max_skew_frames;
	uint32_t resync_packets;
	uint64_t max_gap_frames;
	uint32_t stream_timeout_ms;
	enum backpressure backpressure;
	bool refuse; /**< refuse whole frames when no slot is free; set by placement_choose() */
	enum incomplete_policy incomplete;
	uint32_t packets_min; /**< minimum for keeping an incomplete frame */

	const char *gpu;    /**< gpudev name; NULL: the first GPU, if any */
	const char *kernel; /**< name in gk_ops; "auto" until placement_choose() */
	uint32_t isa;	    /**< enum gk_isa: instruction set of host gangs */
	/** maximum number of frames in a batch; 0: not set, until placement_choose() */
	uint32_t batch;
	uint32_t outputs; /**< number of output slots; 0: not set, until placement_choose() */
	enum packets_way packets;
	bool results_device;  /**< kept frames stay in GPU memory */
	uint32_t watchdog_ms; /**< GPU gangs exit when the host is silent for this time; 0: never */

	struct builder_veto veto;
	enum gk_value value;
	enum settings_compress compress; /**< full images */
	struct builder_dark dark;

	struct calibration_files calibration;

	const char *directory;
	uint64_t receiver_id; /**< id of this receiver, stored in batches */
	/* how files are written, see struct async_writer_config */
	bool buffered;
	uint32_t slice; /**< bytes */
	uint32_t depth;
	uint32_t sync_ms;
	uint64_t sync_bytes;

	uint64_t roll_frames; /**< limits of a file set; then a new one begins. 0: no limit */
	uint64_t roll_bytes;
	uint64_t roll_ms;
	bool store_calibration;	  /**< write the coefficient maps with the files */
	bool nexus;		  /**< main.c starts eal/nexus.h for the files */
	uint32_t frames_interval; /**< frame numbers in a record batch of `frames` */
	uint32_t images_interval;
	uint32_t batch_ms;     /**< maximum time of a record in an open batch; 0: no limit */
	const char *preview;   /**< path of a PNG; auto: in the output directory; off */
	double preview_period; /**< seconds */
	const char *live;      /**< path of the live file; auto: in memory; off */
	double live_period;    /**< seconds */

	const char *run;
	uint64_t run_id;
	const char *sample; /**< sample in the beam */
	struct geometry_settings geometry;
	struct peak_settings peaks;
	struct radial_settings radial;
	struct frame_run frames;
	bool dark_run; /**< the run determines pedestals */
	/** telemetry commands control runs; otherwise the process ends after one run */
	bool service;
	uint32_t idle_timeout_ms; /**< 0: run until stopped */
};

/** Return true if full images are chunks, with settings that placement_choose() has completed. */
static inline bool
settings_compresses(const struct settings *s)
{
	/* not measured on a GPU, whose kernel with this stage is slower */
	return s->value == GK_VALUE_I16 &&
		(s->compress == COMPRESS_YES ||
			(s->compress == COMPRESS_AUTO && strcmp(s->kernel, "cuda") != 0));
}

/**
 * Return true if the gangs write chunks. Gangs of a GPU do so only if the receiver starts with
 * settings whose frames are chunks, because their kernel with this stage is slower. Otherwise the
 * writer compresses raw frames.
 */
static inline bool
settings_chunks(const struct settings *s)
{
	return s->veto.params.kind == GK_KIND_RAW || s->veto.prescale_raw ||
		settings_compresses(s) || strcmp(s->kernel, "cuda") != 0;
}

/** Kinds that gangs write as chunks, as gk_params.chunks. */
static inline uint32_t
settings_chunk_kinds(const struct settings *s)
{
	if (!settings_chunks(s))
		return 0;
	return 1u << GK_KIND_RAW | (settings_compresses(s) ? 1u << GK_KIND_IMAGE : 0);
}

/** Return true if the detector's messages are written into rings in memory. */
static inline bool
settings_in_memory(const struct settings *s)
{
	return s->ingest.transport != INGEST_UDP && s->ingest.delivery == DELIVERY_MEMORY;
}

/** Return the RX lcore of a stream. Streams of neighbouring modules share an lcore. */
static inline uint32_t
settings_stream_owner(const struct settings *s, uint32_t stream)
{
	return stream * s->rx_lcores / s->detector.streams;
}

/**
 * Read all settings. Errors are logged. Strings point into `c`, which must stay open.
 * @param egress  receives section [egress]; s->egress points to it
 * @return 0 or -EINVAL
 */
int settings_read(struct settings *s, struct egress_settings *egress, struct config *c);

#endif /* SETTINGS_H */
