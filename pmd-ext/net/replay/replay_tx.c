/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tx bursts: counted, dropped, or written to a pcap file. The file is intended for tests: it takes
 * a lock and a system call per burst, so that failed writes are noticed. The other two modes need
 * neither.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <pcap/pcap.h>
#include <rte_malloc.h>
#include <rte_spinlock.h>

#include "replay.h"

struct replay_tx_file {
	rte_spinlock_t lock; /* the queues share the file */
	pcap_t *pcap;
	pcap_dumper_t *dump;
	int error; /* errno of the first failed write, after which nothing is written; 0: none */
	uint64_t lost;			 /* frames lost since, up to the next log message */
	uint8_t frame[REPLAY_FRAME_MAX]; /* linearized segments */
};

/* Return true if the file is an input. Opening it for writing would truncate it. */
static bool
is_input(const struct replay_devargs *args)
{
	struct stat in, out;

	if (stat(args->tx_file, &out) != 0)
		return false;
	for (uint16_t f = 0; f < args->nb_files; f++)
		if (stat(args->files[f], &in) == 0 && in.st_dev == out.st_dev &&
			in.st_ino == out.st_ino)
			return true;
	return false;
}

static const char *
reason(int error)
{
	switch (error) {
	case ELOOP:
		return "it is a symbolic link; expected a regular file or a device";
	case EMEDIUMTYPE:
	case ENXIO: /* a FIFO without a reader */
		return "it is neither a regular file nor a device";
	default:
		return strerror(error);
	}
}

/* Truncates an existing file. A link or FIFO of another user in its place is not opened; a device
 * is. */
static FILE *
open_file(const char *path)
{
	const int fd = open(path,
		O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY,
		0644);
	FILE *stream = NULL;
	struct stat st;

	if (fd < 0)
		return NULL;
	if (fstat(fd, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISCHR(st.st_mode))
		errno = EMEDIUMTYPE;
	else
		stream = fdopen(fd, "w");
	if (stream == NULL)
		close(fd);
	return stream;
}

int
replay_tx_open(struct replay_dev *dev)
{
	struct replay_tx_file *file;
	FILE *stream;

	if (dev->args.tx != REPLAY_TX_FILE)
		return 0;
	if (is_input(&dev->args)) {
		REPLAY_LOG(ERR, "%s: tx=file:%s: this is the capture itself, expected another file",
			dev->args.name, dev->args.tx_file);
		return -EINVAL;
	}
	file = rte_zmalloc("replay_tx_file", sizeof(*file), 0);
	if (file == NULL) {
		REPLAY_LOG(ERR, "%s: tx=file:%s: cannot allocate %zu bytes of EAL memory",
			dev->args.name, dev->args.tx_file, sizeof(*file));
		return -ENOMEM;
	}
	rte_spinlock_init(&file->lock);
	file->pcap = pcap_open_dead_with_tstamp_precision(
		DLT_EN10MB, REPLAY_FRAME_MAX, PCAP_TSTAMP_PRECISION_NANO);
	stream = file->pcap != NULL ? open_file(dev->args.tx_file) : NULL;
	if (stream != NULL)
		file->dump = pcap_dump_fopen(file->pcap, stream);
	dev->tx_file = file;
	if (file->dump == NULL) {
		REPLAY_LOG(ERR, "%s: tx=file:%s: %s", dev->args.name, dev->args.tx_file,
			stream == NULL ? reason(errno) : pcap_geterr(file->pcap));
		if (stream != NULL)
			fclose(stream);
		replay_tx_close(dev);
		return -EIO;
	}
	return 0;
}

/* Return true if all frames written so far are in the file. */
static bool
flush(struct replay_tx_file *file)
{
	/* an earlier write of the burst may have failed and left nothing to flush */
	if (file->error == 0 &&
		(pcap_dump_flush(file->dump) != 0 || ferror(pcap_dump_file(file->dump))))
		file->error = errno != 0 ? errno : EIO;
	return file->error == 0;
}

void
replay_tx_flush(struct replay_dev *dev)
{
	struct replay_tx_file *file = dev->tx_file;

	if (file == NULL)
		return;
	rte_spinlock_lock(&file->lock);
	if (!flush(file) && file->lost != 0)
		REPLAY_LOG(ERR, "%s: tx=file:%s: %" PRIu64 " frames could not be written: %s",
			dev->args.name, dev->args.tx_file, file->lost, strerror(file->error));
	file->lost = 0;
	rte_spinlock_unlock(&file->lock);
}

void
replay_tx_close(struct replay_dev *dev)
{
	struct replay_tx_file *file = dev->tx_file;

	if (file == NULL)
		return;
	if (file->dump != NULL) {
		replay_tx_flush(dev);
		pcap_dump_close(file->dump);
	}
	if (file->pcap != NULL)
		pcap_close(file->pcap);
	rte_free(file);
	dev->tx_file = NULL;
}

static void
write_frame(struct replay_tx_file *file, const struct rte_mbuf *m, const struct timespec *now)
{
	const uint32_t len = RTE_MIN(m->pkt_len, REPLAY_FRAME_MAX);
	struct pcap_pkthdr header = {.len = m->pkt_len, .caplen = len};

	header.ts.tv_sec = now->tv_sec;
	header.ts.tv_usec = now->tv_nsec; /* the file's header declares ns */
	pcap_dump((u_char *)file->dump, &header, rte_pktmbuf_read(m, 0, len, file->frame));
}

/* If not all frames of a burst could be written, they count as lost. */
static void
write_burst(struct replay_txq *txq, struct rte_mbuf **bufs, uint16_t nb_bufs)
{
	struct replay_tx_file *file = txq->dev->tx_file;
	struct timespec now;
	uint64_t bytes = 0;

	clock_gettime(CLOCK_REALTIME, &now);
	rte_spinlock_lock(&file->lock);
	errno = 0;
	for (uint16_t i = 0; file->error == 0 && i < nb_bufs; i++) {
		write_frame(file, bufs[i], &now);
		bytes += bufs[i]->pkt_len;
	}
	if (flush(file)) {
		counter_add(&txq->count.packets, nb_bufs);
		counter_add(&txq->count.bytes, bytes);
	} else {
		counter_add(&txq->count.dropped, nb_bufs);
		file->lost += nb_bufs;
	}
	rte_spinlock_unlock(&file->lock);
}

uint16_t
replay_tx_burst(void *queue, struct rte_mbuf **bufs, uint16_t nb_bufs)
{
	struct replay_txq *txq = queue;

	switch (txq->dev->args.tx) {
	case REPLAY_TX_COUNT:
		for (uint16_t i = 0; i < nb_bufs; i++)
			counter_add(&txq->count.bytes, bufs[i]->pkt_len);
		counter_add(&txq->count.packets, nb_bufs);
		break;
	case REPLAY_TX_DROP:
		counter_add(&txq->count.dropped, nb_bufs);
		break;
	case REPLAY_TX_FILE:
		write_burst(txq, bufs, nb_bufs);
		break;
	}
	rte_pktmbuf_free_bulk(bufs, nb_bufs);
	return nb_bufs;
}
