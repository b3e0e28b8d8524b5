# SPDX-License-Identifier: BSD-3-Clause
"""Compares answers of braggline-view with its OpenAPI document."""

import json
import re

import jsonschema

from cases import want

NULLABLE = re.compile(r'"type": "(integer|number)", "nullable": true')
NAMES = re.compile(r'\{(\w+)\}')


class Document:
    """The OpenAPI document, against which answers are checked."""

    def __init__(self, server):
        self.server = server
        self.doc = server.get('openapi.json')
        self.left = {(path, method) for path, item in self.doc['paths'].items() for method in item}
        # (path, method, status) of all responses, and of those that occurred
        self.described = {(path, method, int(status)) for path, method in self.left
                          for status in self.doc['paths'][path][method]['responses']}
        self.occurred = set()

    def resolve(self, item):
        while '$ref' in item:
            at = self.doc
            for key in item['$ref'][2:].split('/'):
                at = at[key]
            item = at
        return item

    def validate(self, value, schema):
        # OpenAPI 3.0: nullable instead of a list of types
        whole = json.dumps({**schema, 'components': self.doc['components']})
        jsonschema.validate(value, json.loads(NULLABLE.sub(r'"type": ["\1", "null"]', whole)))

    def check(self, path, method, answer):
        operation = self.doc['paths'][path][method]
        response = operation['responses'].get(str(answer.status))
        want(response, f'{method} {path}: status {answer.status} is not documented')
        self.left.discard((path, method))
        self.occurred.add((path, method, answer.status))
        response = self.resolve(response)
        for name in response.get('headers', {}):
            want(answer.headers[name], path, 'no header', name)
        if answer.status == 304:
            return answer
        kind = answer.headers['Content-Type'].split(';')[0]
        want(kind in response['content'], path, answer.status, kind, 'is not documented')
        if 'json' in kind:
            self.validate(answer.json(), response['content'][kind]['schema'])
        return answer

    def __call__(self, path, status, method='get', query='', body=None, headers=None, **names):
        url = '/api/v1' + NAMES.sub(lambda m: names[m[1]], path) + query
        answer = self.server(url, method.upper(), body, headers)
        want(answer.status == status, method, url, answer.status, answer.body[:200])
        return self.check(path, method, answer)
