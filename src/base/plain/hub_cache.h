/// \file  Finds models and data sets in the local cache of the Hugging Face hub. Nothing is downloaded: `hf download
/// ORG/NAME` fills the cache.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace evenkeel {

/// What a hub repository holds.
enum class HubKind { kModel, kDataset };

/// Returns the folder of the cache, as huggingface_hub finds it: $HF_HUB_CACHE, $HUGGINGFACE_HUB_CACHE, $HF_HOME/hub,
/// $XDG_CACHE_HOME/huggingface/hub, else ~/.cache/huggingface/hub.
std::filesystem::path hub_cache();

/// Returns the snapshot folder of a hub name in the cache. A name is "org/name" (base/plain/hub_name.h), and
/// "@revision" may follow: a branch, tag or commit, by default "main". Returns nothing if the text is no such name or
/// the cache does not have it.
/// \throws kIo when the cache cannot be read
std::optional<std::filesystem::path> cached_snapshot(HubKind kind, std::string_view name);

/// Begins the address of a file or folder of the hub: hf://org/name[@revision][/path] of a model,
/// hf://datasets/org/name[@revision][/path] of a data set.
inline constexpr std::string_view kHubAddress = "hf://";

/// Returns the path of such an address in the cache. The path inside the snapshot may have wildcards and need not
/// exist.
/// \param key  the config key or flag, for the message
/// \throws kConfig when the cache does not have the repository, with the command that fetches it
std::filesystem::path cached_file(const std::string& address, std::string_view key);

}  // namespace evenkeel
