/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Settings of braggline-recv: the configuration file, read once and checked.
 * conf/ has examples, conf/jungfrau-4m.ini with all sections; README.rst has the table of keys.
 */
#ifndef SETTINGS_H
#define SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_ethdev.h>

#include <gk.h>

#include "arrow/async_writer.h"
#include "builder/builder.h"
#include "calib/calibration.h"
#include "config/config.h"
#include "frames/detector.h"
#include "egress/egress.h"
#include "frames/frame_table.h"
#include "rx/source_settings.h"

#define SETTINGS_PORTS_MAX  16
#define SETTINGS_LCORES_MAX 128

enum rx_mode {
	RX_MODE_AUTO,	/**< split if the port can */
	RX_MODE_SPLIT,	/**< headers in host memory, pixels in the payload pool */
	RX_MODE_SINGLE, /**< whole packets in the payload pool */
};

enum rx_steering {
	RX_STEERING_AUTO,     /**< flow rules if the port takes them */
	RX_STEERING_FLOW,     /**< one queue an RX lcore, rte_flow puts streams there */
	RX_STEERING_SOFTWARE, /**< one queue, RX lcores hand packets on */
};

enum payload_pool {
	PAYLOAD_AUTO,	   /**< by reference for net_replay, else memory */
	PAYLOAD_MEMORY,	   /**< elements of GPU-visible memory */
	PAYLOAD_REFERENCE, /**< no data room: the driver attaches its own buffers */
};

enum idle_policy {
	IDLE_AUTO,  /**< yield if lcores share CPUs, else pause */
	IDLE_POLL,  /**< poll on */
	IDLE_PAUSE, /**< one CPU pause a round */
	IDLE_YIELD, /**< give the CPU away */
};

enum backpressure {
	BACKPRESSURE_AUTO, /**< wait if all ports are replays, else refuse */
	BACKPRESSURE_WAIT,
	BACKPRESSURE_REFUSE,
};

enum incomplete_policy {
	INCOMPLETE_KEEP, /**< process with the missing pixels masked */
	INCOMPLETE_DROP, /**< no image, only the row in `frames` */
};

enum packets_way {
	PACKETS_AUTO,	/**< the GPU's memory where a port can write to it and kernels read it */
	PACKETS_PINNED, /**< host memory that the GPU reads over the bus */
	PACKETS_DEVICE, /**< memory of the GPU */
};

struct port_settings {
	char device[RTE_ETH_NAME_MAX_LEN]; /**< as EAL names it, or a port number */
	uint32_t streams[DETECTOR_STREAMS_MAX];
	uint32_t nb_streams;
	enum rx_mode mode;
	enum rx_steering steering;
	enum payload_pool payload;
	uint32_t descriptors; /**< of one RX queue */
	uint32_t mtu;
};

struct settings {
	struct detector detector;
	uint32_t udp_port; /**< of stream 0; stream s has udp_port + s */
	struct source_settings sources;

	struct port_settings ports[SETTINGS_PORTS_MAX];
	uint32_t nb_ports;

	uint32_t rx_lcores;    /**< RX roles */
	uint32_t gangs;	       /**< 0 = open, until placement_choose() */
	uint32_t gang_workers; /**< host: polling roles a gang, 0 = what lcores are left */
	uint32_t rx_map[SETTINGS_LCORES_MAX], nb_rx_map; /**< lcore ids, none = automatic */
	uint32_t builder_map[1], nb_builder_map;
	uint32_t egress_map[1], nb_egress_map;
	uint32_t compress_map[SETTINGS_LCORES_MAX], nb_compress_map; /**< none = the writer */
	struct egress_settings egress;
	uint32_t gang_map[SETTINGS_LCORES_MAX], nb_gang_map;
	enum idle_policy idle;

	uint32_t slots;
	uint32_t max_skew_frames;
	uint32_t resync_packets;
	uint64_t max_gap_frames;
	uint32_t stream_timeout_ms;
	enum backpressure backpressure;
	bool refuse; /**< whole frames when no slot is free; settled by placement_choose() */
	enum incomplete_policy incomplete;
	uint32_t packets_min; /**< of an incomplete frame that is kept */

	const char *gpu;    /**< gpudev name, NULL = the first one, if any */
	const char *kernel; /**< row of gk_ops; "auto" until placement_choose() */
	enum gk_isa isa;    /**< of host gangs */
	uint32_t batch;	    /**< frames of a batch, at most; 0 = open, until placement_choose() */
	uint32_t outputs;   /**< output slots; likewise */
	enum packets_way packets;
	bool results_device;  /**< kept frames stay in the GPU's memory */
	uint32_t watchdog_ms; /**< a GPU's gangs end when we are silent for so long; 0 = never */

	struct builder_veto veto;
	enum gk_value value;
	struct builder_dark dark;

	struct calibration_files calibration;

	const char *directory;
	uint64_t producer; /**< identity of this receiver in batches */
	struct arrow_slices_config writing;
	uint64_t roll_frames; /**< a new set of files after so much; 0 = no matter */
	uint64_t roll_bytes;
	uint64_t roll_ms;
	bool store_calibration;	  /**< the maps beside the files */
	uint32_t frames_interval; /**< frame numbers of a record batch of `frames` */
	uint32_t images_interval;
	uint32_t batch_ms;     /**< a record is in an open batch for so long at most; 0: no bound */
	const char *preview;   /**< path of a PNG; auto: in the directory; off */
	double preview_period; /**< s */

	const char *run;
	uint64_t run_id;
	const char *sample; /**< what is in the beam */
	double distance;    /**< mm, sample to detector */
	double beam_x;	    /**< pixels of the raster */
	double beam_y;
	struct frame_run frames;
	bool dark_run; /**< the run is to give pedestals */
	bool service;  /**< runs come and go by telemetry; else one run, and the process ends */
	uint32_t idle_timeout_ms; /**< 0 = run until told to stop */
};

/** The RX lcore of a stream: neighbours in the raster to the same one. */
static inline uint32_t
settings_stream_owner(const struct settings *s, uint32_t stream)
{
	return stream * s->rx_lcores / s->detector.streams;
}

/**
 * Read all settings; what is wrong is logged.
 * Text points into `c`, which must stay open.
 * @return 0 or -EINVAL
 */
int settings_read(struct settings *s, struct config *c);

#endif /* SETTINGS_H */
