/// \file  The server's state and the clients' memories as tensors of a file, and what must hold of a state that is read
/// back: it fits the model, and every value is a number.
///
/// Names: "adapter/" before those of lora/adapter_tensors.h, and "adapter/<site>/scaling"; likewise base_delta, fixed
/// and base_change; "extra/<name>", "memory/<name>". Of the clients: "<id>/<name>".
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>

#include "fed/exchange/message.h"

namespace evenkeel {

void save_state(const std::filesystem::path& file, const ServerState& state);
/// Tensors are views of the file. \throws kCheckpoint naming file and tensor when one has no place in a state or is no
/// scalar where one belongs, kNumeric when a value is not finite.
ServerState load_state(const std::filesystem::path& file, int64_t round);

/// The same as bytes, [N] uint8. \param place  whose bytes they are, for errors
at::Tensor encode_state(const ServerState& state);
ServerState decode_state(const at::Tensor& bytes_N, int64_t round, const std::string& place);

void save_memories(const std::filesystem::path& file, const ClientMemories& memories);
/// Copies, which clients may write to. \throws as load_state().
ClientMemories load_memories(const std::filesystem::path& file);
at::Tensor encode_memories(const ClientMemories& memories);
ClientMemories decode_memories(const at::Tensor& bytes_N, const std::string& place);

/// \throws kCheckpoint naming the site of `sites` that `state` has no factors for, or the factors that do not fit it.
void check_state(const ServerState& state, const Sites& sites, const std::string& place);

}  // namespace evenkeel
