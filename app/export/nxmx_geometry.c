/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "child_process.h"
#include "geometry/crystfel.h"
#include "h5.h"
#include "nxmx_geometry.h"

#define CHAIN_MAX  32  /* axes from a pixel to the sample */
#define TEXT_LEN   256 /* maximum bytes of an attribute */
#define OBJECT_LEN 512 /* maximum bytes of the path of an object */
/* characters allowed in names of panels */
#define NAME_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"
#define SQUARE	   1e-6 /* largest relative difference of the sides of a pixel */
/*
 * Largest distance of the first pixels that both directions give, in pixels. The chain of one
 * direction may contain the other one, which moves by a pixel.
 */
#define SAME_ORIGIN 1.5
/* Largest chunk of numbers, bytes: HDF5 allocates whole chunks, also for one value. */
#define CHUNK_MAX (UINT64_C(1) << 26)
#define WORD_MAX  16	     /* maximum bytes of a number */
#define FIXED_MAX (1u << 16) /* maximum bytes of a text of fixed length */

/* Reading: the first error is kept in `message`. */
struct reader {
	struct geometry *g;
	const char *path;
	char *message;
	hid_t file;
	hid_t access;	 /* link access property list that refuses external links */
	double module_z; /* z of the first module's corner, metres */
	double most_z;	 /* largest distance of a corner from the sample along the beam, metres */
};

/* A transformation of points: matrix x point + offset, in metres. */
struct placement {
	double m[3][3], t[3];
};

/* Keeps an error. @param at  object, or negative @param name  of its member; NULL: of the object */
static int __attribute__((format(printf, 4, 5)))
refuse(struct reader *r, hid_t at, const char *name, const char *format, ...)
{
	char path[OBJECT_LEN] = "";
	va_list args;
	int length;

	if (r->message[0] != '\0')
		return -EINVAL;
	if (at >= 0)
		(void)H5Iget_name(at, path, sizeof(path));
	/* the root is "/" */
	length = snprintf(r->message, GEOMETRY_MESSAGE_LEN, "%.300s: %.300s%s%.255s: ", r->path,
		path, name != NULL && path[0] != '\0' && path[1] != '\0' ? "/" : "",
		name != NULL ? name : "");
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

/* Reads the first or the last value. @param space  of the dataset; its selection changes */
static bool
read_element(hid_t set, hid_t space, bool last, double *value)
{
	hsize_t start[H5S_MAX_RANK] = {0}, count[H5S_MAX_RANK], dims[H5S_MAX_RANK];
	const int rank = H5Sget_simple_extent_dims(space, dims, NULL);
	const hid_t one = H5Screate(H5S_SCALAR);
	bool ok = one >= 0 && rank >= 0;

	for (int i = 0; i < rank; i++) {
		count[i] = 1;
		if (last)
			start[i] = dims[i] - 1;
	}
	if (rank > 0)
		ok = ok &&
			H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL) >= 0;
	ok = ok &&
		H5Dread(set, H5T_NATIVE_DOUBLE, one, rank > 0 ? space : H5S_ALL, H5P_DEFAULT,
			value) >= 0;
	h5_release(one);
	return ok;
}

/* Reads the first value of a dataset. @param last  out: the last one, which may be NaN */
static int
read_number(struct reader *r, hid_t set, double *value, double *last)
{
	hid_t space = -1;
	bool ok = false;

	if (has_numbers(set, false))
		space = H5Dget_space(set);
	if (space >= 0 && H5Sget_simple_extent_npoints(space) > 0)
		ok = read_element(set, space, false, value) && read_element(set, space, true, last);
	h5_release(space);
	return ok && isfinite(*value) ? 0 : refuse(r, set, NULL, "expected a finite number");
}

/* Reads rows and columns. */
static int
read_pair(struct reader *r, hid_t at, const char *name, double min, double value[2])
{
	const hid_t set = open_dataset(r, at, name);
	hid_t space = -1;
	bool ok = false;

	if (set >= 0 && has_numbers(set, false))
		space = H5Dget_space(set);
	if (space >= 0 && H5Sget_simple_extent_npoints(space) == 2)
		ok = H5Dread(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, value) >= 0;
	h5_release(space);
	h5_release(set);
	for (int i = 0; i < 2; i++)
		ok = ok && value[i] >= min && value[i] <= GEOMETRY_SIDE_MAX &&
			value[i] == floor(value[i]);
	return ok ? 0
		  : refuse(r, at, name,
			    "expected rows and columns, two whole numbers, %g ... %u, in this file",
			    min, GEOMETRY_SIDE_MAX);
}

/* Reads text of an attribute or a scalar dataset, of a fixed or a variable length. */
static bool
get_text(hid_t object, bool attribute, char text[TEXT_LEN])
{
	const hid_t type = attribute ? H5Aget_type(object) : H5Dget_type(object);
	const hid_t space = attribute ? H5Aget_space(object) : H5Dget_space(object);
	char fixed[TEXT_LEN + 1] = "", *variable = NULL;
	const char *from = fixed;
	void *to = fixed;
	hid_t memory = -1;
	bool ok = type >= 0 && space >= 0 && H5Tget_class(type) == H5T_STRING &&
		H5Sget_simple_extent_npoints(space) == 1 &&
		(H5Tis_variable_str(type) > 0 || H5Tget_size(type) <= FIXED_MAX);

	if (ok && H5Tis_variable_str(type) > 0) {
		to = &variable;
		memory = H5Tcopy(type);
	} else if (ok) {
		memory = H5Tcopy(H5T_C_S1);
		ok = H5Tset_size(memory, sizeof(fixed)) >= 0;
	}
	if (ok)
		ok = (attribute ? H5Aread(object, memory, to)
				: H5Dread(object, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, to)) >= 0;
	if (variable != NULL)
		from = variable;
	ok = ok && strlen(from) < TEXT_LEN;
	text[0] = '\0';
	if (ok)
		strcpy(text, from);
	if (variable != NULL)
		H5free_memory(variable);
	h5_release(memory);
	h5_release(space);
	h5_release(type);
	return ok;
}

/* Whether an object may have an attribute: one that HDF5 cannot find because of damage counts. */
static bool
has_attribute(hid_t object, const char *name)
{
	return H5Aexists(object, name) != 0;
}

static bool
attribute_text(hid_t object, const char *name, char text[TEXT_LEN])
{
	hid_t attribute;
	bool ok;

	text[0] = '\0';
	if (!has_attribute(object, name))
		return false;
	attribute = H5Aopen(object, name, H5P_DEFAULT);
	ok = attribute >= 0 && get_text(attribute, true, text);
	h5_release(attribute);
	return ok;
}

static int
read_text(struct reader *r, hid_t object, const char *name, char text[TEXT_LEN])
{
	if (attribute_text(object, name, text))
		return 0;
	if (has_attribute(object, name))
		return refuse(r, object, NULL, "attribute %s is not text of at most %d bytes", name,
			TEXT_LEN - 1);
	return refuse(r, object, NULL, "attribute %s is missing, expected text", name);
}

static int
read_vector(struct reader *r, hid_t object, const char *name, double v[3])
{
	hid_t attribute = -1, space = -1;
	bool ok = false;

	if (has_attribute(object, name))
		attribute = H5Aopen(object, name, H5P_DEFAULT);
	if (attribute >= 0 && has_numbers(attribute, true))
		space = H5Aget_space(attribute);
	if (space >= 0 && H5Sget_simple_extent_npoints(space) == 3)
		ok = H5Aread(attribute, H5T_NATIVE_DOUBLE, v) >= 0;
	h5_release(space);
	h5_release(attribute);
	if (ok && isfinite(v[0]) && isfinite(v[1]) && isfinite(v[2]))
		return 0;
	return refuse(r, object, NULL, "attribute %s is %s", name,
		has_attribute(object, name) ? "not three finite numbers"
					    : "missing, expected three finite numbers");
}

struct unit {
	const char *name; /* NULL: end of a table */
	double factor;	  /* factor to metres or radians */
	bool symbol;	  /* a symbol, case-sensitive; false: a word, also in the plural */
};

static const struct unit lengths[] = {{"m", 1, true}, {"cm", 1e-2, true}, {"mm", 1e-3, true},
	{"um", 1e-6, true}, {"nm", 1e-9, true}, {"A", 1e-10, true},
	/* in UTF-8: the micro sign and the letter, the letter and the sign of the unit */
	{"\xc2\xb5m", 1e-6, true}, {"\xce\xbcm", 1e-6, true}, {"\xc3\x85", 1e-10, true},
	{"\xe2\x84\xab", 1e-10, true}, {"metre", 1, false}, {"meter", 1, false},
	{"centimetre", 1e-2, false}, {"centimeter", 1e-2, false}, {"millimetre", 1e-3, false},
	{"millimeter", 1e-3, false}, {"micrometre", 1e-6, false}, {"micrometer", 1e-6, false},
	{"micron", 1e-6, false}, {"nanometre", 1e-9, false}, {"nanometer", 1e-9, false},
	{"angstrom", 1e-10, false}, {"ang", 1e-10, false}, {NULL, 0, false}};

static const struct unit angles[] = {{"deg", M_PI / 180, false}, {"degree", M_PI / 180, false},
	{"rad", 1, false}, {"radian", 1, false}, {NULL, 0, false}};

static bool
is_unit(const struct unit *u, const char *text)
{
	const size_t length = strlen(u->name);

	if (u->symbol)
		return strcmp(text, u->name) == 0;
	return strncasecmp(text, u->name, length) == 0 &&
		(text[length] == '\0' || strcasecmp(text + length, "s") == 0);
}

/* Reads a unit. @param units  table @param factor  out: to metres or radians */
static int
read_unit(struct reader *r, hid_t object, const char *attribute, const struct unit *units,
	double *factor)
{
	char text[TEXT_LEN];

	if (read_text(r, object, attribute, text) < 0)
		return -EINVAL;
	for (const struct unit *u = units; u->name != NULL; u++) {
		*factor = u->factor;
		if (is_unit(u, text))
			return 0;
	}
	return refuse(r, object, NULL, "attribute %s is '%.32s', expected %s", attribute, text,
		units == angles ? "deg or rad" : "m, cm, mm, um, nm or angstrom");
}

/* Reads a length. @param metres, last  out: first and last value @param factor  out: to metres */
static int
read_length(struct reader *r, hid_t set, double *metres, double *last, double *factor)
{
	if (read_unit(r, set, "units", lengths, factor) < 0 ||
		read_number(r, set, metres, last) < 0)
		return -EINVAL;
	*metres *= *factor;
	*last *= *factor;
	return 0;
}

/* Reads an offset in metres. @param factor  to metres, if the offset has no unit; 0: none */
static int
read_offset(struct reader *r, hid_t object, double factor, double offset[3])
{
	memset(offset, 0, 3 * sizeof(*offset));
	if (!has_attribute(object, "offset"))
		return 0;
	if (read_vector(r, object, "offset", offset) < 0)
		return -EINVAL;
	/* rotations often have an offset of 0 without a unit */
	if ((has_attribute(object, "offset_units") ||
		    (factor == 0 && (offset[0] != 0 || offset[1] != 0 || offset[2] != 0))) &&
		read_unit(r, object, "offset_units", lengths, &factor) < 0)
		return -EINVAL;
	for (int i = 0; i < 3; i++)
		offset[i] *= factor;
	return 0;
}

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

/* Reads a direction of the length 1. */
static int
read_direction(struct reader *r, hid_t object, double v[3])
{
	double length;

	if (read_vector(r, object, "vector", v) < 0)
		return -EINVAL;
	length = sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
	if (!(length > 0 && isfinite(length)))
		return refuse(r, object, NULL, "attribute vector: its length is %g", length);
	for (int i = 0; i < 3; i++)
		v[i] /= length;
	return 0;
}

/* Reads an axis: its own movement, and then its offset. @param next  out: "." at the end */
static int
read_axis(struct reader *r, hid_t axis, struct placement *p, char next[TEXT_LEN])
{
	double v[3], offset[3], value, last, factor = 0;
	char type[TEXT_LEN];
	int ret;

	*p = (struct placement){.m = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}};
	if (read_text(r, axis, "transformation_type", type) < 0 || read_direction(r, axis, v) < 0 ||
		read_text(r, axis, "depends_on", next) < 0)
		return -EINVAL;
	if (strcmp(type, "rotation") == 0) {
		if (read_unit(r, axis, "units", angles, &factor) < 0 ||
			read_number(r, axis, &value, &last) < 0)
			return -EINVAL;
		rotate(p, v, value * factor);
		factor = 0;
	} else if (strcmp(type, "translation") == 0) {
		if (read_length(r, axis, &value, &last, &factor) < 0)
			return -EINVAL;
		for (int i = 0; i < 3; i++)
			p->t[i] = v[i] * value;
	} else {
		return refuse(r, axis, NULL,
			"transformation_type is '%.32s', expected translation or rotation", type);
	}
	if (last != value)
		return refuse(r, axis, NULL,
			"its values change; expected one value, because a geometry is that of all "
			"images");
	ret = read_offset(r, axis, factor, offset);
	for (int i = 0; ret == 0 && i < 3; i++)
		p->t[i] += offset[i];
	return ret;
}

/* Makes the path of an axis. @param at  object in whose group a relative name is */
static int
axis_path(struct reader *r, hid_t at, bool is_group, const char *name, char path[OBJECT_LEN])
{
	ssize_t length = 0;

	if (name[0] != '/') {
		length = H5Iget_name(at, path, OBJECT_LEN);
		if (length > 0 && length < OBJECT_LEN && !is_group)
			length = strrchr(path, '/') - path;
	}
	if (length >= 0 && length + 1 + strlen(name) < OBJECT_LEN) {
		sprintf(path + length, "%s%s", name[0] != '/' ? "/" : "", name);
		return 0;
	}
	return refuse(
		r, at, NULL, "the path of depends_on is longer than %d bytes", OBJECT_LEN - 1);
}

/* Follows the chain of axes. @param first  path of its first axis @param p  out */
static int
read_chain(struct reader *r, hid_t module, const char *first, struct placement *p)
{
	char next[TEXT_LEN], path[OBJECT_LEN];
	struct placement step;
	hid_t axis;
	int ret = 0;

	*p = (struct placement){.m = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}};
	if (strcmp(first, ".") == 0)
		return 0;
	ret = axis_path(r, module, true, first, path);
	for (int i = 0; ret == 0; i++) {
		if (i == CHAIN_MAX)
			return refuse(r, module, NULL,
				"depends_on %.64s: its chain of axes has no end, or more than %d "
				"axes",
				first, CHAIN_MAX);
		axis = open_dataset(r, r->file, path);
		if (axis < 0)
			return refuse(r, -1, path, "there is no such axis in this file");
		ret = read_axis(r, axis, &step, next);
		if (ret == 0)
			apply(p, &step);
		if (ret == 0 && strcmp(next, ".") == 0) {
			h5_release(axis);
			return 0;
		}
		if (ret == 0)
			ret = axis_path(r, axis, false, next, path);
		h5_release(axis);
	}
	return ret;
}

static double
turned(const struct placement *p, const double v[3], int i)
{
	return p->m[i][0] * v[0] + p->m[i][1] * v[1] + p->m[i][2] * v[2];
}

/* The direction of a row or a column, from one pixel to the next one. */
struct step {
	double v[3];	    /* direction in the frame of the module */
	double size;	    /* size of a pixel, metres */
	struct placement p; /* frame of the module, whose origin is the first pixel */
};

static int
read_step(struct reader *r, hid_t module, const char *name, struct step *s)
{
	const hid_t set = open_dataset(r, module, name);
	char depends_on[TEXT_LEN];
	double last, factor, offset[3];
	int ret = -EINVAL;

	if (set < 0)
		return refuse(r, module, name, "there is no such dataset in this file");
	if (read_length(r, set, &s->size, &last, &factor) == 0 &&
		read_direction(r, set, s->v) == 0 && read_offset(r, set, factor, offset) == 0 &&
		read_text(r, set, "depends_on", depends_on) == 0)
		ret = 0;
	if (ret == 0 && !(s->size >= GEOMETRY_PIXEL_MIN && s->size <= GEOMETRY_PIXEL_MAX))
		ret = refuse(r, set, NULL, "the size of a pixel is %g m, expected %g ... %g m",
			s->size, GEOMETRY_PIXEL_MIN, GEOMETRY_PIXEL_MAX);
	h5_release(set);
	if (ret == 0)
		ret = read_chain(r, module, depends_on, &s->p);
	for (int i = 0; ret == 0 && i < 3; i++)
		s->p.t[i] += turned(&s->p, offset, i);
	return ret;
}

/* Names a panel as in files of this program, or by its number. */
static int
name_panel(struct reader *r, hid_t module, struct geometry_panel *p)
{
	const hid_t text = open_dataset(r, module, "panel");
	char title[TEXT_LEN];

	if (text < 0 || !get_text(text, false, title) || title[0] == '\0' ||
		strlen(title) >= sizeof(p->name) || title[strspn(title, NAME_CHARS)] != '\0' ||
		strncmp(title, "bad", 3) == 0)
		snprintf(title, sizeof(title), "m%u", r->g->nb_panels);
	h5_release(text);
	strcpy(p->name, title);
	for (uint32_t i = 0; i < r->g->nb_panels; i++)
		if (strcmp(r->g->panel[i].name, title) == 0)
			return refuse(r, module, "panel",
				"%s is the name of two modules; rename or remove one of the "
				"datasets",
				title);
	return 0;
}

static int
read_module(struct reader *r, hid_t module)
{
	struct geometry_panel *p = &r->g->panel[r->g->nb_panels];
	double origin[2], size[2], apart = 0;
	struct step fast, slow;

	if (r->g->nb_panels == GEOMETRY_PANELS_MAX)
		return refuse(r, module, NULL, "more than %d modules", GEOMETRY_PANELS_MAX);
	if (read_pair(r, module, "data_origin", 0, origin) < 0 ||
		read_pair(r, module, "data_size", 1, size) < 0 ||
		read_step(r, module, "fast_pixel_direction", &fast) < 0 ||
		read_step(r, module, "slow_pixel_direction", &slow) < 0)
		return -EINVAL;
	if (origin[0] + size[0] > GEOMETRY_SIDE_MAX || origin[1] + size[1] > GEOMETRY_SIDE_MAX)
		return refuse(r, module, NULL,
			"data_origin + data_size is %g x %g, expected at most %u rows and columns",
			origin[0] + size[0], origin[1] + size[1], GEOMETRY_SIDE_MAX);
	if (r->g->nb_panels == 0) {
		r->g->pixel_metres = fast.size;
		r->module_z = fast.p.t[2];
	}
	if (fabs(fast.size / r->g->pixel_metres - 1) > SQUARE ||
		fabs(slow.size / r->g->pixel_metres - 1) > SQUARE)
		return refuse(r, module, NULL,
			"its pixels are %g m x %g m, expected squares of %g m", fast.size,
			slow.size, r->g->pixel_metres);
	for (int i = 0; i < 3; i++)
		apart = fmax(apart, fabs(fast.p.t[i] - slow.p.t[i]));
	if (!(apart <= SAME_ORIGIN * r->g->pixel_metres))
		return refuse(r, module, NULL,
			"fast_pixel_direction and slow_pixel_direction depend on axes that are %g "
			"m apart",
			apart);
	memset(p, 0, sizeof(*p));
	if (name_panel(r, module, p) < 0)
		return -EINVAL;
	r->most_z = fmax(r->most_z, fabs(fast.p.t[2]));
	p->ss_min = (uint32_t)origin[0];
	p->fs_min = (uint32_t)origin[1];
	p->height = (uint32_t)size[0];
	p->width = (uint32_t)size[1];
	p->max_adu = INFINITY;
	p->corner_x = fast.p.t[0] / r->g->pixel_metres;
	p->corner_y = fast.p.t[1] / r->g->pixel_metres;
	p->coffset_metres = fast.p.t[2] - r->module_z;
	p->fs_x = turned(&fast.p, fast.v, 0);
	p->fs_y = turned(&fast.p, fast.v, 1);
	p->fs_z = turned(&fast.p, fast.v, 2);
	p->ss_x = turned(&slow.p, slow.v, 0);
	p->ss_y = turned(&slow.p, slow.v, 1);
	p->ss_z = turned(&slow.p, slow.v, 2);
	r->g->nb_panels++;
	return 0;
}

/* Members of a class, in the order of their names. */
struct visit {
	struct reader *r;
	const char *nx_class;
	int (*member)(struct reader *r, hid_t group);
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
refuse_link(struct reader *r, hid_t group, const H5L_info_t *info, const char *name)
{
	if (info->type == H5L_TYPE_EXTERNAL)
		return refuse(r, group, name,
			"found a link to another file, which may hide a module; copy the object "
			"into this file");
	return refuse(r, group, name,
		"its link cannot be opened, which may hide a module; repair or remove the link");
}

static herr_t
visit_member(hid_t group, const char *name, const H5L_info_t *info, void *arg)
{
	struct visit *v = arg;
	char nx_class[TEXT_LEN];
	hid_t object;
	int ret = 0;

	object = open_object(v->r, group, name);
	if (object < 0)
		return may_be_absent(info, name) ? 0 : refuse_link(v->r, group, info, name);
	if (H5Iget_type(object) == H5I_GROUP && attribute_text(object, "NX_class", nx_class) &&
		strcmp(nx_class, v->nx_class) == 0)
		ret = v->member(v->r, object);
	h5_release(object);
	return ret;
}

/*
 * Calls `member` for the groups of a class until it does not return 0.
 * @return what the last call returned; 0: there is no such group
 */
static int
visit(struct reader *r, hid_t group, const char *nx_class,
	int (*member)(struct reader *r, hid_t group))
{
	struct visit v = {.r = r, .nx_class = nx_class, .member = member};
	const herr_t ret = H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, NULL, visit_member, &v);

	return ret < 0 ? refuse(r, group, NULL, "its members cannot be read") : ret;
}

/* Reads the distance of a detector whose axes begin at the detector and not at the sample. */
static int
read_distance(struct reader *r, hid_t detector, double *distance)
{
	const hid_t set = open_dataset(r, detector, "distance");
	double last, factor;
	int ret;

	if (set < 0)
		return refuse(r, detector, "distance",
			"there is no such dataset, and the axes of the modules end at the sample; "
			"add it, or an axis along the beam");
	ret = read_length(r, set, distance, &last, &factor);
	h5_release(set);
	return ret;
}

/* @return 1; 0: it has no modules; -EINVAL */
static int
read_detector(struct reader *r, hid_t detector)
{
	int ret = visit(r, detector, "NXdetector_module", read_module);

	if (ret < 0 || r->g->nb_panels == 0)
		return ret;
	/* the axes decide; `distance` is only a guide */
	r->g->distance_metres = r->module_z;
	if (r->most_z < r->g->pixel_metres)
		ret = read_distance(r, detector, &r->g->distance_metres);
	if (ret < 0)
		return ret;
	if (r->g->distance_metres >= GEOMETRY_DISTANCE_MIN &&
		r->g->distance_metres <= GEOMETRY_DISTANCE_MAX)
		return 1;
	return refuse(r, detector, NULL,
		"its modules are %g m downstream of the sample, expected %g ... %g m; correct its "
		"axes along the beam",
		r->g->distance_metres, GEOMETRY_DISTANCE_MIN, GEOMETRY_DISTANCE_MAX);
}

/* @return 1; -EINVAL. A wavelength that is absent, or changes in the run, is not known. */
static int
read_beam(struct reader *r, hid_t beam)
{
	hid_t set;
	double value, last, factor, energy;
	int ret;

	if (H5Lexists(beam, "incident_wavelength", H5P_DEFAULT) == 0)
		return 1;
	set = open_dataset(r, beam, "incident_wavelength");
	if (set < 0)
		return refuse(
			r, beam, "incident_wavelength", "there is no such dataset in this file");
	ret = read_length(r, set, &value, &last, &factor);
	energy = GEOMETRY_HC / (value * 1e10);
	if (ret == 0 && !(energy >= GEOMETRY_ENERGY_MIN && energy <= GEOMETRY_ENERGY_MAX))
		ret = refuse(r, set, NULL, "the energy is %g eV, expected %g ... %g eV", energy,
			GEOMETRY_ENERGY_MIN, GEOMETRY_ENERGY_MAX);
	h5_release(set);
	if (ret == 0 && last == value)
		r->g->energy_ev = energy;
	return ret < 0 ? ret : 1;
}

/* @return 1; 0: it has no detector with modules; -EINVAL */
static int
read_instrument(struct reader *r, hid_t instrument)
{
	int ret = visit(r, instrument, "NXdetector", read_detector);

	if (ret <= 0)
		return ret;
	ret = visit(r, instrument, "NXbeam", read_beam);
	return ret != 0 ? ret : refuse(r, instrument, NULL, "has no group of the class NXbeam");
}

static int
read_entry(struct reader *r, hid_t entry)
{
	return visit(r, entry, "NXinstrument", read_instrument);
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
	struct h5 h;
	int ret;

	memset(g, 0, sizeof(*g));
	message[0] = '\0';
	h5_open(&h, path);
	r.file = h.file;
	r.access = make_access();
	if (h.failed)
		ret = refuse(&r, -1, "HDF5", "%s", h.message);
	else if (r.access < 0)
		ret = refuse(&r, -1, "HDF5", "links to other files cannot be refused");
	else
		ret = visit(&r, h.file, "NXentry", read_entry);
	if (ret == 0)
		ret = refuse(&r, h.file, NULL,
			"there is no NXdetector_module of an NXdetector of an NXinstrument of an "
			"NXentry");
	h5_release(r.access);
	(void)h5_close(&h);
	if (ret < 0)
		return ret;
	return crystfel_check(g, path, raster, message);
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
		ret = child_process_call(read_here, c, sizeof(*c));
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
