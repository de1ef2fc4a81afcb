/// \file  Reads and writes the server's state and the clients' memories as safetensors files. Reading checks that all
/// values are finite. check_state() checks that the factors of a state fit the model.
///
/// Tensor names: "adapter/" followed by the names of lora/adapter_tensors.h, and "adapter/<site>/scaling"; the same
/// with "base_delta/", "fixed/" and "base_change/"; "extra/<name>" and "memory/<name>"; an empty "unadapted/<site>" per
/// site of ServerState::unadapted. Client memories: "<id>/<name>".
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "fed/exchange/message.h"

namespace evenkeel::fed {

/// Writes a state atomically.
void save_state(const std::filesystem::path& file, const methods::ServerState& state);
/// Reads a state. Its tensors are views of the mapped file.
/// \param round  value of ServerState::round, which the file does not contain
/// \throws kCheckpoint naming file and tensor when a name is unknown or a scalar is expected; kNumeric when a value is
/// not finite
methods::ServerState load_state(const std::filesystem::path& file, int64_t round);

/// Encodes a state as the bytes of its file, [N] uint8, or decodes such bytes.
/// \param source  names the origin of the bytes in error messages
/// \throws as load_state()
at::Tensor encode_state(const methods::ServerState& state);
methods::ServerState decode_state(const at::Tensor& bytes_N, int64_t round, const std::string& source);

/// Writes the clients' memories atomically.
void save_memories(const std::filesystem::path& file, const ClientMemories& memories);
/// Reads the clients' memories as copies that clients may write to. \throws as load_state()
ClientMemories load_memories(const std::filesystem::path& file);
/// Encodes the memories as the bytes of their file, [N] uint8, or decodes such bytes. \throws as load_state()
at::Tensor encode_memories(const ClientMemories& memories);
ClientMemories decode_memories(const at::Tensor& bytes_N, const std::string& source);

/// Returns the sites for which `state` has neither LoRA factors nor a change of the base weight.
std::set<std::string> unadapted_sites(const methods::ServerState& state, const lora::Sites& sites);

/// Checks that `state` has LoRA factors or a change of the base weight for every site but those of
/// ServerState::unadapted, and that their shapes fit the site.
/// \throws kCheckpoint naming the site without factors, or the factors of the wrong shape
void check_state(const methods::ServerState& state, const lora::Sites& sites, const std::string& source);

}  // namespace evenkeel::fed
