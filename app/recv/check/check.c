/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/timex.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_string_fns.h>

#include "check/check.h"
#include "check/cpu.h"
#include "check/egress.h"
#include "check/geometry.h"
#include "check/host.h"
#include "check/ingest.h"
#include "check/memory.h"
#include "check/multicast.h"
#include "check/port.h"
#include "check/storage.h"
#include "egress/egress.h"
#include "port/placement.h"
#include "settings.h"

const char *const check_verdict_names[CHECK_VERDICTS] = {
	[CHECK_OK] = "ok",
	[CHECK_WARN] = "warn",
	[CHECK_FAIL] = "FAIL",
	[CHECK_NA] = "n.a.",
};

void
check_add(struct check *c, enum check_verdict verdict, const char *item, const char *value, ...)
{
	struct check_row *r = &c->rows[c->nb_rows];
	va_list arguments;

	if (c->nb_rows == CHECK_ROWS_MAX)
		return;
	c->nb_rows++;
	r->verdict = verdict;
	r->fix[0] = '\0';
	rte_strscpy(r->item, item, sizeof(r->item));
	va_start(arguments, value);
	vsnprintf(r->value, sizeof(r->value), value, arguments);
	va_end(arguments);
}

void
check_fix(struct check *c, const char *fix, ...)
{
	va_list arguments;

	if (c->nb_rows == 0)
		return;
	va_start(arguments, fix);
	vsnprintf(c->rows[c->nb_rows - 1].fix, sizeof(c->rows[0].fix), fix, arguments);
	va_end(arguments);
}

static int
read_text(const struct check *c, char *text, size_t size, const char *path, va_list arguments)
{
	char name[PATH_MAX];
	size_t length = 0;
	ssize_t n = 1;
	int fd, at;

	text[0] = '\0';
	at = snprintf(name, sizeof(name), "%s", c->root);
	vsnprintf(name + at, sizeof(name) - at, path, arguments);
	fd = open(name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	/* a read() of a /proc file may return only a part */
	while (length < size - 1 && n > 0) {
		n = read(fd, text + length, size - 1 - length);
		if (n > 0)
			length += n;
	}
	close(fd);
	text[length] = '\0';
	if (n < 0)
		return -EIO;
	while (length > 0 && text[length - 1] == '\n')
		text[--length] = '\0';
	return length;
}

int
check_read(const struct check *c, char *text, size_t size, const char *path, ...)
{
	va_list arguments;
	int ret;

	va_start(arguments, path);
	ret = read_text(c, text, size, path, arguments);
	va_end(arguments);
	return ret;
}

int64_t
check_read_number(const struct check *c, const char *path, ...)
{
	va_list arguments;
	char text[32];
	char *end;
	int64_t n;
	int ret;

	va_start(arguments, path);
	ret = read_text(c, text, sizeof(text), path, arguments);
	va_end(arguments);
	if (ret <= 0)
		return -1;
	n = strtoll(text, &end, 10);
	return *end == '\0' && n >= 0 ? n : -1;
}

int
check_parse_cpus(const char *list, cpu_set_t *cpus)
{
	CPU_ZERO(cpus);
	while (*list != '\0') {
		char *end;
		unsigned long first = strtoul(list, &end, 10), last = first;

		if (end == list)
			break;
		if (*end == '-')
			last = strtoul(end + 1, &end, 10);
		for (; first <= last && first < CPU_SETSIZE; first++)
			CPU_SET(first, cpus);
		if (*end != ',')
			break;
		list = end + 1;
	}
	return CPU_COUNT(cpus);
}

const char *
check_print_cpus(const cpu_set_t *cpus, char *text, size_t size)
{
	size_t at = 0;
	int last;

	rte_strscpy(text, "none", size);
	for (int cpu = 0; cpu < CPU_SETSIZE && at < size; cpu = last + 1) {
		last = cpu;
		if (!CPU_ISSET(cpu, cpus))
			continue;
		while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, cpus))
			last++;
		at += snprintf(text + at, size - at, "%s%d", at == 0 ? "" : ",", cpu);
		if (last > cpu && at < size)
			at += snprintf(
				text + at, size - at, "%c%d", last > cpu + 1 ? '-' : ',', last);
	}
	return text;
}

const char *
check_print_bytes(uint64_t bytes, char text[16])
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
	double value = bytes;
	unsigned int unit = 0;

	for (; value >= 1024 && unit + 1 < RTE_DIM(units); unit++)
		value /= 1024;
	snprintf(text, 16, unit == 0 || value >= 100 ? "%.0f %s" : "%.1f %s", value, units[unit]);
	return text;
}

uint32_t
check_print(const struct check *c, FILE *out)
{
	uint32_t n[CHECK_VERDICTS] = {0};
	int width = strlen("item");

	for (uint32_t i = 0; i < c->nb_rows; i++)
		width = RTE_MAX(width, (int)strlen(c->rows[i].item));
	fprintf(out, "%-*s  %-7s  %s\n", width, "item", "verdict", "value, and what to do");
	for (uint32_t i = 0; i < c->nb_rows; i++) {
		const struct check_row *r = &c->rows[i];

		n[r->verdict]++;
		fprintf(out, "%-*s  %-7s  %s\n", width, r->item, check_verdict_names[r->verdict],
			r->value);
		if (r->fix[0] != '\0')
			fprintf(out, "%*s  fix:     %s\n", width, "", r->fix);
	}
	fprintf(out, "%u items: %u ok, %u warn, %u fail, %u n.a.\n", c->nb_rows, n[CHECK_OK],
		n[CHECK_WARN], n[CHECK_FAIL], n[CHECK_NA]);
	return n[CHECK_FAIL];
}

uint32_t
check_run(const struct settings *s, const struct placement *way, FILE *out)
{
	static struct check_port ports[SETTINGS_PORTS_MAX];
	static struct check_lcores lcores;
	static struct check_maps maps;
	static struct check check;
	struct check_egress egress;
	struct timex timex = {0};
	struct rlimit locked = {0};
	struct check *c = &check;
	struct check_heap heap;
	struct check_need need;
	struct check_gpu gpu;
	int state;

	c->root = "";
	check_find_gpu(s, way, &gpu);
	check_find_heap(&heap);
	for (uint32_t i = 0; i < s->nb_ports; i++) {
		check_find_port(&ports[i], s, i);
		lcores.live |= !ports[i].replay;
	}
	check_open_egress(&egress, s, way->results);
	check_count_need(s, &gpu, ports, egress.lacks_slots, &need);
	need.heap += egress.heap;
	/* an adapter registers all of the journal, a GPU the output slots that gangs use */
	if (egress.pins)
		need.journal = egress.journal.file;
	else if (egress.slots.n > 0 && !egress.lacks_slots && gpu.present && !gpu.is_virtual)
		need.journal = egress.journal.slots * egress.journal.slot_bytes;

	for (uint32_t i = 0; i < s->nb_ports; i++) {
		check_try_port(&ports[i], s);
		check_port(c, s, &ports[i]);
	}
	check_udp_ports(c, s);
	check_multicast(c, s);
	check_queue_pairs(c, s);
	check_card(c, s);
	check_close_egress(&egress);

	check_gpu(c, s, &gpu, &need);
	check_kernel(c, s, way);
	check_placement(c, s, way);
	check_gpu_direct(c, &gpu, ports, s->nb_ports);

	check_heap(c, &heap, &need);
	check_huge_pages(c, &heap, &need);
	check_rings(c, s, &heap, &need);
	check_searches(c, s, &need);
	getrlimit(RLIMIT_MEMLOCK, &locked);
	check_locked_memory(c, &locked, &need, &gpu, ports, s->nb_ports);
	check_iova(c, rte_eal_iova_mode() == RTE_IOVA_VA, ports, s->nb_ports);
	check_iommu(c, ports, s->nb_ports);

	if (check_place_roles(c, s, &lcores) == 0) {
		check_sharing(c, &lcores);
		check_siblings(c, &lcores);
		check_isolation(c, &lcores);
		check_governor(c, &lcores);
		check_irqbalance(c, &lcores);
		check_interrupts(c, &lcores);
		check_command_line(c, &lcores);
		check_numa(c, &lcores, &heap, &gpu, ports, s->nb_ports);
	}
	check_numa_balancing(c);
	check_autogroup(c);

	check_tsc(c);
	state = adjtimex(&timex);
	check_clock(c, state < 0 ? -errno : state, &timex);

	check_calibration(c, s, &maps);
	check_directory(c, s, &maps);
	check_free_maps(&maps);
	check_geometry(c, s);
	check_space(c, s);
	check_preview(c, s);
	check_direct_io(c, s);
	check_egress(c, s, &egress);
	return check_print(c, out);
}
