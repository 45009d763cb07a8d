// The fixture of tests that use the library with all that stands around its core.
#pragma once

#include "cgtree/cgtree.h"
#include "tests/support/core_fixture.h"
