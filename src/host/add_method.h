/// \file  Adds a method in Python to the registry of methods.
#pragma once

#include <string>

namespace evenkeel::host {

/// Starts a host with the class that `--method FILE:CLASS` names, and adds the class to the registry of methods.
/// \param source  FILE:CLASS
/// \return the name of the method \throws kConfig, kIo as Host::describe(); kConfig when the name is taken
std::string add_method_of(const std::string& source);

}  // namespace evenkeel::host
