/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Nodes of the tree of a parsed statement: the objects, lists and values of json_serialize_sql().
 */
#ifndef SQL_NODE_H
#define SQL_NODE_H

#include <stdbool.h>
#include <stdint.h>

struct sql_statement;

/** A node of the parsed tree. */
struct sql_node {
	uint64_t id;
	int parent; /**< index; -1: none */
	int child;  /**< index of the first child; -1: none */
	int next;   /**< index of the next child of the parent; -1: none */
	const char *key;
	const char *text; /**< value of text, number or boolean; NULL: another kind */
	bool is_integer;  /**< `text` is an integer */
	uint64_t first;	  /**< of a table of FROM */
	uint64_t last;
};

/** A child of a node with a key; `node` -1 has none. @return its index; -1: none */
int sql_node_child(const struct sql_statement *s, int node, const char *key);

/** Text of a child; "" if it has none. */
const char *sql_node_text(const struct sql_statement *s, int node, const char *key);

/** Whether the text of a child is this one. */
bool sql_node_is(const struct sql_statement *s, int node, const char *key, const char *text);

/** Whether a node has neither children nor a text, or is -1. */
bool sql_node_is_empty(const struct sql_statement *s, int node);

#endif /* SQL_NODE_H */
