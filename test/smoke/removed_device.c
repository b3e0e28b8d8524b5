/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Preloaded: the Ethernet device that REMOVED_DEVICE names reports its removal once the file
 * REMOVED_FILE exists.
 */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_ethdev.h>

struct callback {
	rte_eth_dev_cb_fn call;
	void *arg;
};

static void *
report(void *arg)
{
	struct callback *c = arg;
	uint16_t port;

	while (access(getenv("REMOVED_FILE"), F_OK) != 0)
		usleep(10000);
	if (rte_eth_dev_get_port_by_name(getenv("REMOVED_DEVICE"), &port) == 0)
		c->call(port, RTE_ETH_EVENT_INTR_RMV, c->arg, NULL);
	free(c);
	return NULL;
}

int
rte_eth_dev_callback_register(
	uint16_t port, enum rte_eth_event_type event, rte_eth_dev_cb_fn call, void *arg)
{
	int (*original)(uint16_t, enum rte_eth_event_type, rte_eth_dev_cb_fn, void *);
	char name[RTE_ETH_NAME_MAX_LEN] = "";
	struct callback *c;
	pthread_t thread;

	original = (int (*)(uint16_t, enum rte_eth_event_type, rte_eth_dev_cb_fn, void *))dlsym(
		RTLD_NEXT, "rte_eth_dev_callback_register");
	if (port != RTE_ETH_ALL)
		rte_eth_dev_get_name_by_port(port, name);
	/* a RoCE device registers for the events of all ports */
	if (event == RTE_ETH_EVENT_INTR_RMV &&
		(port == RTE_ETH_ALL || strcmp(name, getenv("REMOVED_DEVICE")) == 0)) {
		c = malloc(sizeof(*c));
		if (c == NULL)
			return -ENOMEM;
		*c = (struct callback){call, arg};
		if (pthread_create(&thread, NULL, report, c) == 0)
			pthread_detach(thread);
		else
			free(c);
	}
	return original(port, event, call, arg);
}
