// The fixture of tests that use the library with its extensions.
#pragma once

#include "cgtree/cgtree.h"
#include "tests/support/core_fixture.h"
