// Stands in for a header of gloo that LibTorch includes but does not need; see gloo/context.h.
#pragma once
