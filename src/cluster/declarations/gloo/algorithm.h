// Nothing of it is needed; see context.h.
#pragma once
