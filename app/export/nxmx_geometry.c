/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "geometry/crystfel.h"
#include "h5.h"
#include "isolated.h"
#include "nxmx_geometry.h"

#define CHAIN_MAX 32  /* axes from a pixel to the sample */
#define TEXT_LEN  256 /* of an attribute */
/* of names of panels in geometry files */
#define NAME_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"
#define SQUARE	   1e-6 /* largest relative difference of the sides of a pixel */
/* Largest chunk of numbers, bytes: HDF5 allocates whole chunks, also for one value. */
#define CHUNK_MAX (UINT64_C(1) << 26)
#define WORD_MAX  16	     /* bytes of a number */
#define FIXED_MAX (1u << 16) /* of a text of a fixed length */

/* Reading: the first error is kept in `message`. */
struct reader {
	struct geometry *g;
	const char *path;
	char *message;
	hid_t file;
	hid_t access;	 /* of links: none leads to another file */
	double module_z; /* of the first module's corner */
};

/* A transformation of points: matrix x point + offset, in metres. */
struct placement {
	double m[3][3], t[3];
};

static int __attribute__((format(printf, 3, 4)))
refuse(struct reader *r, const char *object, const char *format, ...)
{
	va_list args;
	int length;

	if (r->message[0] != '\0')
		return -EINVAL;
	length = snprintf(r->message, GEOMETRY_MESSAGE_LEN, "%.400s: %.200s: ", r->path, object);
	va_start(args, format);
	(void)vsnprintf(r->message + length, GEOMETRY_MESSAGE_LEN - length, format, args);
	va_end(args);
	return -EINVAL;
}

/* Refuses an external link: it may lead to a pipe, or to any file that this user may read. */
static herr_t
refuse_external(const char *file, const char *group, const char *target_file, const char *target,
	unsigned int *flags, hid_t access, void *arg)
{
	return -1;
}

static hid_t
make_access(void)
{
	const hid_t access = H5Pcreate(H5P_LINK_ACCESS);

	if (access >= 0 && H5Pset_elink_cb(access, refuse_external, NULL) < 0) {
		h5_release(access);
		return -1;
	}
	return access;
}

/* Opens an object that may not exist. @return negative: it does not, or is in another file */
static hid_t
open_object(const struct reader *r, hid_t at, const char *name)
{
	return H5Oopen(at, name, r->access);
}

/* Whether HDF5 needs a plausible amount of memory for a value. */
static bool
is_bounded(hid_t set, hid_t creation)
{
	hsize_t chunk[H5S_MAX_RANK], bytes;
	hid_t type;
	int rank;

	if (H5Pget_layout(creation) != H5D_CHUNKED)
		return true;
	rank = H5Pget_chunk(creation, H5S_MAX_RANK, chunk);
	type = H5Dget_type(set);
	bytes = type >= 0 ? H5Tget_size(type) : 0;
	h5_release(type);
	for (int i = 0; i < rank && bytes > 0 && bytes <= CHUNK_MAX; i++)
		bytes = chunk[i] <= CHUNK_MAX ? bytes * chunk[i] : UINT64_MAX;
	return rank > 0 && bytes > 0 && bytes <= CHUNK_MAX;
}

/* Whether an object has numbers. */
static bool
has_numbers(hid_t object, bool attribute)
{
	const hid_t type = attribute ? H5Aget_type(object) : H5Dget_type(object);
	const H5T_class_t class = type >= 0 ? H5Tget_class(type) : H5T_NO_CLASS;
	const bool ok =
		(class == H5T_INTEGER || class == H5T_FLOAT) && H5Tget_size(type) <= WORD_MAX;

	h5_release(type);
	return ok;
}

/*
 * Opens a dataset whose values are in this file. External storage and the sources of a virtual
 * dataset may be pipes, or any files; even the size of a virtual dataset is read from its sources.
 * @return negative: there is none
 */
static hid_t
open_dataset(const struct reader *r, hid_t at, const char *name)
{
	const hid_t set = open_object(r, at, name);
	hid_t creation = -1;
	bool ok = false;

	if (set >= 0 && H5Iget_type(set) == H5I_DATASET)
		creation = H5Dget_create_plist(set);
	if (creation >= 0)
		ok = H5Pget_layout(creation) != H5D_VIRTUAL &&
			H5Pget_external_count(creation) == 0 && is_bounded(set, creation);
	h5_release(creation);
	if (ok)
		return set;
	h5_release(set);
	return -1;
}

/* Reads the only or the first value. @return false: absent, no number, or not finite */
static bool
read_number(const struct reader *r, hid_t at, const char *name, double *value)
{
	hid_t set = open_dataset(r, at, name), space = -1, one = -1;
	hsize_t start[H5S_MAX_RANK] = {0}, count[H5S_MAX_RANK];
	bool ok = false;
	int rank;

	if (set >= 0 && has_numbers(set, false))
		space = H5Dget_space(set);
	rank = space >= 0 ? H5Sget_simple_extent_ndims(space) : -1;
	for (int i = 0; i < rank; i++)
		count[i] = 1;
	one = H5Screate(H5S_SCALAR);
	if (rank >= 0 && H5Sget_simple_extent_npoints(space) > 0 &&
		(rank == 0 ||
			H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL) >= 0))
		ok = H5Dread(set, H5T_NATIVE_DOUBLE, one, rank > 0 ? space : H5S_ALL, H5P_DEFAULT,
			     value) >= 0;
	h5_release(one);
	h5_release(space);
	h5_release(set);
	return ok && isfinite(*value);
}

static bool
read_integers(const struct reader *r, hid_t at, const char *name, int64_t value[2])
{
	const hid_t set = open_dataset(r, at, name);
	hid_t space = -1;
	bool ok = false;

	if (set >= 0 && has_numbers(set, false))
		space = H5Dget_space(set);
	if (space >= 0 && H5Sget_simple_extent_npoints(space) == 2)
		ok = H5Dread(set, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, value) >= 0;
	h5_release(space);
	h5_release(set);
	return ok;
}

/* Reads text of an attribute or a scalar dataset, of a fixed or a variable length. */
static bool
read_text(hid_t object, bool attribute, char text[TEXT_LEN])
{
	const hid_t type = attribute ? H5Aget_type(object) : H5Dget_type(object);
	const hid_t space = attribute ? H5Aget_space(object) : H5Dget_space(object);
	char *variable = NULL;
	void *to = text;
	hid_t memory = -1;
	bool ok = type >= 0 && space >= 0 && H5Tget_class(type) == H5T_STRING &&
		H5Sget_simple_extent_npoints(space) == 1 &&
		(H5Tis_variable_str(type) > 0 || H5Tget_size(type) <= FIXED_MAX);

	memset(text, 0, TEXT_LEN);
	if (ok && H5Tis_variable_str(type) > 0) {
		to = &variable;
		memory = H5Tcopy(type);
	} else if (ok) {
		memory = H5Tcopy(H5T_C_S1);
		ok = H5Tset_size(memory, TEXT_LEN) >= 0;
	}
	if (ok)
		ok = (attribute ? H5Aread(object, memory, to)
				: H5Dread(object, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, to)) >= 0;
	if (ok && variable != NULL)
		snprintf(text, TEXT_LEN, "%s", variable);
	if (variable != NULL)
		H5free_memory(variable);
	text[TEXT_LEN - 1] = '\0';
	h5_release(memory);
	h5_release(space);
	h5_release(type);
	return ok;
}

static bool
attribute_text(hid_t object, const char *name, char text[TEXT_LEN])
{
	hid_t attribute;
	bool ok;

	text[0] = '\0';
	if (H5Aexists(object, name) <= 0)
		return false;
	attribute = H5Aopen(object, name, H5P_DEFAULT);
	ok = attribute >= 0 && read_text(attribute, true, text);
	h5_release(attribute);
	return ok;
}

static bool
attribute_vector(hid_t object, const char *name, double v[3])
{
	hid_t attribute, space = -1;
	bool ok = false;

	if (H5Aexists(object, name) <= 0)
		return false;
	attribute = H5Aopen(object, name, H5P_DEFAULT);
	if (attribute >= 0 && has_numbers(attribute, true))
		space = H5Aget_space(attribute);
	if (space >= 0 && H5Sget_simple_extent_npoints(space) == 3)
		ok = H5Aread(attribute, H5T_NATIVE_DOUBLE, v) >= 0;
	h5_release(space);
	h5_release(attribute);
	return ok && isfinite(v[0]) && isfinite(v[1]) && isfinite(v[2]);
}

/* @return factor to metres; 0: another unit */
static double
metres_of(const char *unit)
{
	static const struct {
		const char *name;
		double metres;
	} units[] = {{"m", 1}, {"metre", 1}, {"meter", 1}, {"mm", 1e-3}, {"millimetre", 1e-3},
		{"millimeter", 1e-3}, {"um", 1e-6}, {"micron", 1e-6}, {"cm", 1e-2}};

	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (strcmp(unit, units[i].name) == 0)
			return units[i].metres;
	return 0;
}

/* Whether a unit is one of some words, in any case. @param words  NULL at the end */
static bool
is_unit(const char *unit, const char *const *words)
{
	for (; *words != NULL; words++)
		if (strcasecmp(unit, *words) == 0)
			return true;
	return false;
}

static const char *const degrees[] = {"deg", "degree", "degrees", NULL};
static const char *const radians[] = {"rad", "radian", "radians", NULL};
/* the last two: the letter, and the sign for the unit, in UTF-8 */
static const char *const angstroms[] = {
	"angstrom", "angstroms", "ang", "A", "\xc3\x85", "\xe2\x84\xab", NULL};

/* a = b x a */
static void
apply(struct placement *a, const struct placement *b)
{
	const struct placement was = *a;

	for (int i = 0; i < 3; i++) {
		a->t[i] = b->t[i];
		for (int k = 0; k < 3; k++) {
			a->t[i] += b->m[i][k] * was.t[k];
			a->m[i][k] = 0;
			for (int n = 0; n < 3; n++)
				a->m[i][k] += b->m[i][n] * was.m[n][k];
		}
	}
}

/* Rotation about a unit vector by Rodrigues's formula. */
static void
rotate(struct placement *p, const double v[3], double angle)
{
	const double c = cos(angle), s = sin(angle);
	const double cross[3][3] = {{0, -v[2], v[1]}, {v[2], 0, -v[0]}, {-v[1], v[0], 0}};

	for (int i = 0; i < 3; i++)
		for (int k = 0; k < 3; k++)
			p->m[i][k] = c * (i == k) + s * cross[i][k] + (1 - c) * v[i] * v[k];
}

static double
normalise(double v[3])
{
	const double length = sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);

	for (int i = 0; i < 3 && length > 0; i++)
		v[i] /= length;
	return length;
}

/* Reads an axis: its own movement, and then its offset. @param next  out: "." at the end */
static int
read_axis(struct reader *r, hid_t axis, const char *name, struct placement *p, char next[TEXT_LEN])
{
	char type[TEXT_LEN], unit[TEXT_LEN], offset_unit[TEXT_LEN];
	double v[3], offset[3] = {0}, value, factor;

	*p = (struct placement){.m = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}};
	if (!attribute_text(axis, "transformation_type", type) ||
		!attribute_vector(axis, "vector", v) || !attribute_text(axis, "units", unit) ||
		!read_number(r, axis, ".", &value) || !attribute_text(axis, "depends_on", next) ||
		!(normalise(v) > 0))
		return refuse(r, name,
			"expected a value with transformation_type, vector, units and depends_on");
	if (strcmp(type, "rotation") == 0) {
		if (!is_unit(unit, degrees) && !is_unit(unit, radians))
			return refuse(r, name, "units are %s, expected deg or rad", unit);
		rotate(p, v, is_unit(unit, degrees) ? value * M_PI / 180 : value);
	} else {
		factor = metres_of(unit);
		if (strcmp(type, "translation") != 0 || factor == 0)
			return refuse(r, name,
				"found %s in %s, expected a translation in m or mm, or a rotation",
				type, unit);
		for (int i = 0; i < 3; i++)
			p->t[i] = v[i] * value * factor;
	}
	if (!attribute_vector(axis, "offset", offset))
		return 0;
	/* the validator wants offset_units only where there is an offset */
	factor = attribute_text(axis, "offset_units", offset_unit) ? metres_of(offset_unit)
		: metres_of(unit) > 0				   ? metres_of(unit)
								   : 1;
	if (factor == 0)
		return refuse(r, name, "offset_units are %s, expected m or mm", offset_unit);
	for (int i = 0; i < 3; i++)
		p->t[i] += offset[i] * factor;
	return 0;
}

/* Follows the chain of axes. @param first  path of its first axis @param p  out */
static int
read_chain(struct reader *r, hid_t at, const char *first, struct placement *p)
{
	char next[TEXT_LEN], name[TEXT_LEN];
	struct placement step;
	hid_t axis, from = at;
	int ret = 0;

	*p = (struct placement){.m = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}};
	snprintf(next, sizeof(next), "%s", first);
	for (int i = 0; ret == 0 && strcmp(next, ".") != 0; i++) {
		if (i == CHAIN_MAX) {
			ret = refuse(r, first, "its chain of axes has no end");
			break;
		}
		memcpy(name, next, sizeof(name));
		/* relative to the group of the axis that names it */
		axis = open_dataset(r, name[0] == '/' ? r->file : from, name);
		if (axis < 0) {
			ret = refuse(r, name, "there is no such axis");
		} else {
			ret = read_axis(r, axis, name, &step, next);
			if (ret == 0)
				apply(p, &step);
		}
		h5_release(axis);
		if (name[0] == '/' && next[0] != '/' && strcmp(next, ".") != 0) {
			/* its group becomes a part of the path */
			char *slash = strrchr(name, '/');
			char whole[2 * TEXT_LEN];

			slash[1] = '\0';
			snprintf(whole, sizeof(whole), "%s%s", name, next);
			snprintf(next, sizeof(next), "%.255s", whole);
		}
	}
	return ret;
}

static double
turned(const struct placement *p, const double v[3], int i)
{
	return p->m[i][0] * v[0] + p->m[i][1] * v[1] + p->m[i][2] * v[2];
}

/* Reads the direction of a row or a column, and the axis that it depends on. */
static int
read_direction(struct reader *r, hid_t module, const char *name, double v[3], double *size,
	char depends_on[TEXT_LEN], struct placement *p)
{
	const hid_t set = open_dataset(r, module, name);
	char unit[TEXT_LEN];
	double factor = 0, length = 0, offset[3] = {0};
	int ret;

	if (set >= 0 && attribute_vector(set, "vector", v) && attribute_text(set, "units", unit) &&
		attribute_text(set, "depends_on", depends_on) && read_number(r, set, ".", size)) {
		factor = metres_of(unit);
		length = normalise(v);
		(void)attribute_vector(set, "offset", offset);
	}
	h5_release(set);
	if (!(factor > 0) || !(length > 0) || !(*size > 0))
		return refuse(r, name,
			"expected the size of a pixel in m or mm, with vector and depends_on");
	*size *= factor;
	ret = read_chain(r, module, depends_on, p);
	for (int i = 0; ret == 0 && i < 3; i++)
		p->t[i] += turned(p, offset, i) * factor;
	return ret;
}

static int
read_module(struct reader *r, hid_t module, const char *name)
{
	struct geometry_panel *p = &r->g->panel[r->g->nb_panels];
	char depends_on[TEXT_LEN], title[TEXT_LEN];
	struct placement of_fast, of_slow;
	int64_t origin[2], size[2];
	double fast[3], slow[3], fast_size, slow_size;
	hid_t text;

	if (r->g->nb_panels == GEOMETRY_PANELS_MAX)
		return refuse(r, name, "more than %d modules", GEOMETRY_PANELS_MAX);
	if (!read_integers(r, module, "data_origin", origin) ||
		!read_integers(r, module, "data_size", size) || origin[0] < 0 || origin[1] < 0 ||
		size[0] < 1 || size[1] < 1 || origin[0] > GEOMETRY_SIDE_MAX ||
		origin[1] > GEOMETRY_SIDE_MAX || size[0] > GEOMETRY_SIDE_MAX - origin[0] ||
		size[1] > GEOMETRY_SIDE_MAX - origin[1])
		return refuse(r, name, "expected data_origin and data_size of two numbers");
	if (read_direction(r, module, "fast_pixel_direction", fast, &fast_size, depends_on,
		    &of_fast) < 0 ||
		read_direction(r, module, "slow_pixel_direction", slow, &slow_size, depends_on,
			&of_slow) < 0)
		return -EINVAL;
	if (r->g->nb_panels == 0) {
		r->g->pixel_metres = fast_size;
		r->module_z = of_fast.t[2];
	}
	if (fabs(fast_size / r->g->pixel_metres - 1) > SQUARE ||
		fabs(slow_size / r->g->pixel_metres - 1) > SQUARE)
		return refuse(r, name, "its pixels are %g m x %g m, expected squares of %g m",
			fast_size, slow_size, r->g->pixel_metres);
	memset(p, 0, sizeof(*p));
	/* names of files of this program are those of the panels */
	text = open_dataset(r, module, "panel");
	if (text < 0 || !read_text(text, false, title) || title[0] == '\0' ||
		title[strspn(title, NAME_CHARS)] != '\0')
		snprintf(title, sizeof(title), "m%u", r->g->nb_panels);
	h5_release(text);
	snprintf(p->name, sizeof(p->name), "%.31s", title);
	p->ss_min = origin[0];
	p->fs_min = origin[1];
	p->height = size[0];
	p->width = size[1];
	p->max_adu = INFINITY;
	p->corner_x = of_fast.t[0] / r->g->pixel_metres;
	p->corner_y = of_fast.t[1] / r->g->pixel_metres;
	p->coffset_metres = of_fast.t[2] - r->module_z;
	p->fs_x = turned(&of_fast, fast, 0);
	p->fs_y = turned(&of_fast, fast, 1);
	p->fs_z = turned(&of_fast, fast, 2);
	p->ss_x = turned(&of_slow, slow, 0);
	p->ss_y = turned(&of_slow, slow, 1);
	p->ss_z = turned(&of_slow, slow, 2);
	r->g->nb_panels++;
	return 0;
}

/* Members of a class, in the order of their names. */
struct visit {
	struct reader *r;
	const char *nx_class;
	int (*member)(struct reader *r, hid_t group, const char *name);
	unsigned int found;
	bool once;
};

/* Fields of a detector that writers link to files of metadata. Geometry does not need them. */
static bool
may_be_absent(const H5L_info_t *info, const char *name)
{
	static const char *const fields[] = {"pixel_mask", "flatfield", "data", "bad_pixel",
		"bit_depth", "count", "threshold_energy", "photon_energy", "serial_number",
		"software_version", "eiger_fw_version", "detector_readout_time", "ntrigger",
		"nimages", "data_collection_date", "saturation_value", "underload_value",
		"frame_time", "sensor_", "x_pixel_size", "y_pixel_size", "beam_center_"};

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		if (info->type == H5L_TYPE_EXTERNAL &&
			strncmp(name, fields[i], strlen(fields[i])) == 0)
			return true;
	return false;
}

static int
refuse_link(struct reader *r, const H5L_info_t *info, const char *name)
{
	if (info->type == H5L_TYPE_EXTERNAL)
		return refuse(r, name,
			"found a link to another file, which may hide a module; copy the object "
			"into this file");
	return refuse(r, name,
		"its link cannot be opened, which may hide a module; repair or remove the link");
}

static herr_t
visit_member(hid_t group, const char *name, const H5L_info_t *info, void *arg)
{
	struct visit *v = arg;
	char nx_class[TEXT_LEN];
	hid_t object;
	int ret = 0;

	if (v->once && v->found > 0)
		return 0;
	object = open_object(v->r, group, name);
	if (object < 0)
		return may_be_absent(info, name) ? 0 : refuse_link(v->r, info, name);
	if (H5Iget_type(object) == H5I_GROUP && attribute_text(object, "NX_class", nx_class) &&
		strcmp(nx_class, v->nx_class) == 0) {
		v->found++;
		ret = v->member(v->r, object, name);
	}
	h5_release(object);
	return ret < 0 ? -1 : 0;
}

static int
visit(struct reader *r, hid_t group, const char *nx_class, bool once,
	int (*member)(struct reader *r, hid_t group, const char *name))
{
	struct visit v = {.r = r, .nx_class = nx_class, .member = member, .once = once};

	if (H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, NULL, visit_member, &v) < 0)
		return refuse(r, nx_class, "cannot be read");
	return v.found > 0 ? 0 : refuse(r, nx_class, "there is no such group");
}

static int
read_detector(struct reader *r, hid_t detector, const char *name)
{
	double guidance;
	int ret = visit(r, detector, "NXdetector_module", false, read_module);

	if (ret < 0)
		return ret;
	r->g->distance_metres = r->module_z;
	/* the axes decide; `distance` is a guide, and helps where the axes start at the detector */
	if (!(r->module_z > 0) && read_number(r, detector, "distance", &guidance) && guidance > 0) {
		hid_t set = open_dataset(r, detector, "distance");
		char unit[TEXT_LEN];

		r->g->distance_metres =
			guidance * (attribute_text(set, "units", unit) ? metres_of(unit) : 1);
		h5_release(set);
	}
	if (!(r->g->distance_metres > 0))
		return refuse(r, name,
			"its modules are %g m downstream of the sample, expected more "
			"than 0",
			r->module_z);
	return 0;
}

static int
read_beam(struct reader *r, hid_t beam, const char *name)
{
	hid_t set = open_object(r, beam, "incident_wavelength");
	char unit[TEXT_LEN];
	double value;

	if (set < 0 && H5Lexists(beam, "incident_wavelength", H5P_DEFAULT) <= 0)
		return 0;
	if (set < 0 || !attribute_text(set, "units", unit))
		unit[0] = '\0';
	h5_release(set);
	if (!read_number(r, beam, "incident_wavelength", &value) || !(value > 0))
		return refuse(r, "incident_wavelength", "expected a positive number");
	if (metres_of(unit) > 0)
		value *= metres_of(unit) * 1e10;
	else if (strcmp(unit, "nm") == 0)
		value *= 10;
	else if (!is_unit(unit, angstroms))
		return refuse(r, "incident_wavelength", "units are %s, expected angstrom", unit);
	value = GEOMETRY_HC / value;
	/* as geometry/crystfel.c */
	if (!(value >= 1 && value <= 1e7))
		return refuse(r, "incident_wavelength",
			"the energy is %g eV, expected 1 ... 1e7 eV", value);
	r->g->energy_ev = value;
	return 0;
}

static int
read_instrument(struct reader *r, hid_t instrument, const char *name)
{
	int ret = visit(r, instrument, "NXdetector", true, read_detector);

	if (ret == 0)
		ret = visit(r, instrument, "NXbeam", true, read_beam);
	return ret;
}

static int
read_entry(struct reader *r, hid_t entry, const char *name)
{
	return visit(r, entry, "NXinstrument", true, read_instrument);
}

bool
nxmx_geometry_is_name(const char *path)
{
	static const char *const ends[] = {".h5", ".nxs", ".hdf5", ".cxi"};
	const char *dot = strrchr(path, '.');

	for (size_t i = 0; dot != NULL && i < sizeof(ends) / sizeof(ends[0]); i++)
		if (strcmp(dot, ends[i]) == 0)
			return true;
	return false;
}

int
nxmx_geometry_read_here(struct geometry *g, const char *path, const struct geometry_raster *raster,
	char message[GEOMETRY_MESSAGE_LEN])
{
	struct reader r = {.g = g, .path = path, .message = message};
	char *text = NULL;
	size_t size = 0;
	struct h5 h;
	FILE *f;
	int ret;

	memset(g, 0, sizeof(*g));
	message[0] = '\0';
	h5_open(&h, path);
	r.file = h.file;
	r.access = make_access();
	if (h.failed)
		ret = refuse(&r, "HDF5", "%s", h.message);
	else if (r.access < 0)
		ret = refuse(&r, "HDF5", "links to other files cannot be refused");
	else
		ret = visit(&r, h.file, "NXentry", true, read_entry);
	h5_release(r.access);
	(void)h5_close(&h);
	for (uint32_t i = 0; ret == 0 && i < g->nb_panels; i++) {
		const struct geometry_panel *p = &g->panel[i];

		g->rows = p->ss_min + p->height > g->rows ? p->ss_min + p->height : g->rows;
		g->cols = p->fs_min + p->width > g->cols ? p->fs_min + p->width : g->cols;
	}
	if (ret < 0)
		return ret;
	/* the reader of CrystFEL's files checks names, overlaps, limits and the raster */
	f = open_memstream(&text, &size);
	if (f == NULL)
		return -ENOMEM;
	ret = crystfel_write(g, NULL, f);
	if (fclose(f) != 0 || ret != 0)
		ret = -ENOMEM;
	if (ret == 0)
		ret = crystfel_read(g, text, size, path, raster, message);
	free(text);
	return ret;
}

/* A call of nxmx_geometry_read_here(). */
struct call {
	struct geometry g;
	const char *path;
	const struct geometry_raster *raster;
	char message[GEOMETRY_MESSAGE_LEN];
	int ret;
};

static void
read_here(void *state)
{
	struct call *c = state;

	c->ret = nxmx_geometry_read_here(&c->g, c->path, c->raster, c->message);
}

int
nxmx_geometry_read(struct geometry *g, const char *path, const struct geometry_raster *raster,
	char message[GEOMETRY_MESSAGE_LEN])
{
	struct call *c = calloc(1, sizeof(*c));
	int ret = c != NULL ? 0 : -ENOMEM;

	if (ret == 0) {
		c->path = path;
		c->raster = raster;
		ret = isolated_call(read_here, c, sizeof(*c));
	}
	if (ret == 0) {
		*g = c->g;
		memcpy(message, c->message, sizeof(c->message));
		ret = c->ret;
	} else {
		snprintf(message, GEOMETRY_MESSAGE_LEN, "%.400s: %s", path,
			ret == -EFAULT ? "HDF5 cannot read it: it is damaged; repair or replace it"
				       : strerror(-ret));
		ret = ret == -ENOMEM ? ret : -EINVAL;
	}
	free(c);
	return ret;
}
