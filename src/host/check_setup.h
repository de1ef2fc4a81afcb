/// \file  Checks what a client is to train, before the model is asked for a loss of it.
#pragma once

#include <string_view>

#include "methods/method.h"

namespace evenkeel::host {

/// Checks that a model can compute with the result of prepare(), and that a client that trains has a trained tensor.
/// \param who  the hook and its client, with which the message begins
/// \throws kConfig naming a site without A, B or a trained core, a trained tensor of another type than float32 and
/// float64, or a setup in which nothing is trained
void check_setup(const methods::LocalSetup& setup, bool trains, std::string_view who);

}  // namespace evenkeel::host
