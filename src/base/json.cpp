#include "base/json.h"

#include "base/files.h"

namespace evenkeel {

Json parse_json(std::string_view text, std::string_view origin, ErrorKind kind) {
  try {
    return Json::parse(text.begin(), text.end());
  } catch (const Json::parse_error& error) {
    throw Error(kind, concat(origin, ": not valid JSON at byte ", error.byte, " of ", text.size()));
  } catch (const Json::exception& error) {
    throw Error(kind, concat(origin, ": not valid JSON: ", error.what()));
  }
}

Json load_json(const std::filesystem::path& file, ErrorKind kind) {
  return parse_json(read_file(file), file.string(), kind);
}

}  // namespace evenkeel
