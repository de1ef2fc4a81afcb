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

/// Returns the folder of the cache. As in huggingface_hub 2.4 it is the first that is set of $HF_HUB_CACHE,
/// $HUGGINGFACE_HUB_CACHE, $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub, else ~/.cache/huggingface/hub. `~`, `~user`,
/// `$NAME` and `${NAME}` in these variables are expanded. An empty variable counts as set.
std::filesystem::path hub_cache();

/// Returns the snapshot folder of a hub name in the cache, as huggingface_hub's snapshot_download() finds it without
/// network. A name is "org/name" (base/plain/hub_name.h), and "@revision" may follow: a branch, a tag, a reference such
/// as refs/pr/1, or a commit in its full length; by default "main". Returns nothing if the text is not such a name or
/// the cache does not have it. Unlike snapshot_download() it does not check that the snapshot has all files.
/// \throws kIo when the cache cannot be read
std::optional<std::filesystem::path> cached_snapshot(HubKind kind, std::string_view name);

/// Returns cached_snapshot() of a name. \throws kConfig when the text is a name "org/name" that the cache does not
/// have; the message has the command that downloads it. Other text gives nothing.
/// \param key  the config key or flag, for the message
std::optional<std::filesystem::path> found_snapshot(HubKind kind, std::string_view name, std::string_view key);

/// The prefix of an address. hf://[models/]org/name[@revision][/path] is a file or folder of a model,
/// hf://datasets/org/name[@revision][/path] one of a data set. The parts are those of huggingface_hub's parse_hf_uri: a
/// slash in a revision is written %2F, except in refs/pr/NUMBER and refs/convert/NAME.
inline constexpr std::string_view kHubAddress = "hf://";

/// Returns the path of an address in the cache. The part of the path inside the snapshot may have wildcards and need
/// not exist.
/// \param key  the config key or flag, for the message
/// \throws kConfig when the address is malformed, or, with the command that downloads the repository, when the cache
/// does not have it; kInternal when the address does not begin with kHubAddress; kIo when the cache cannot be read
std::filesystem::path cached_file(const std::string& address, std::string_view key);

/// Returns the address of the same files whose revision is a commit: hf://org/name@COMMIT[/path]. It names the same
/// files after a branch has moved.
/// \param text  an address, or a name "org/name[@revision]" of a model
/// \return nothing if it is neither, or if the snapshot is not named by a commit
/// \throws kConfig as cached_file() and found_snapshot()
std::optional<std::string> pinned_address(const std::string& text, std::string_view key);

}  // namespace evenkeel
