/// \file  Finds models and data sets in the local cache of the Hugging Face hub. Nothing is downloaded: `hf download
/// ORG/NAME` fills the cache.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace evenkeel {

/// The two kinds of repositories on the hub.
enum class HubKind { kModel, kDataset };

/// Returns the folder of the cache. As in huggingface_hub it is the first that is set of $HF_HUB_CACHE,
/// $HUGGINGFACE_HUB_CACHE, $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub, else ~/.cache/huggingface/hub. Unlike
/// huggingface_hub it does not expand `~` and `$NAME` in these variables.
std::filesystem::path hub_cache();

/// Returns the snapshot folder of a hub name in the cache. A name is "org/name" (base/plain/hub_name.h), and
/// "@revision" may follow: a branch or tag without a slash in its name, or a commit; by default "main". Returns nothing
/// if the text is not such a name or the cache does not have it.
/// \throws kIo when the cache cannot be read
std::optional<std::filesystem::path> cached_snapshot(HubKind kind, std::string_view name);

/// The prefix of an address. hf://org/name[@revision][/path] is a file or folder of a model,
/// hf://datasets/org/name[@revision][/path] one of a data set.
inline constexpr std::string_view kHubAddress = "hf://";

/// Returns the path of an address in the cache. The part of the path inside the snapshot may have wildcards and need
/// not exist. REQUIRES an address that begins with kHubAddress.
/// \param key  the config key or flag, for the message
/// \throws kConfig, with the command that downloads the repository, when the name is malformed or the cache does not
/// have it; kIo when the cache cannot be read
std::filesystem::path cached_file(const std::string& address, std::string_view key);

}  // namespace evenkeel
