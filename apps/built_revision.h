/// \file  Declares the commit that cmake/Revision.cmake finds when the program is built.
#pragma once

#include <string_view>

namespace evenkeel::apps {

/// Returns the commit in the form of revision() (base/system/revision.h).
std::string_view built_revision();

}  // namespace evenkeel::apps
