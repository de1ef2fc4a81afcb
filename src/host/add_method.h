/// \file  Adds a method in Python to the registry of methods.
#pragma once

#include <string>

namespace evenkeel::host {

/// Makes the class that `--method FILE:CLASS` names a method of the registry. Its host is started.
/// \return the name of the method \throws kConfig, kIo as Host::describe(); kConfig when the name is taken
std::string add_method_of(const std::string& source);

}  // namespace evenkeel::host
