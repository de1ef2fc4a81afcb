#include "base/plain/chained_lines.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "base/plain/clock.h"
#include "base/plain/descriptor.h"
#include "base/plain/files.h"
#include "base/plain/folders.h"
#include "base/plain/os_error.h"
#include "base/plain/sealed.h"

namespace evenkeel {
namespace {

constexpr std::string_view kNumber = "n", kBefore = "before", kKind = "kind", kTorn = "torn";
constexpr off_t kEndBlock = off_t{1} << 16;  // read at the end of the file, enough for many lines

std::string first_before() { return std::string(64, '0'); }

/// Returns true for a whole line, whether or not its checksum fits. Other text is the beginning of a line.
bool is_whole(std::string_view line) { return line.starts_with('{') && ends_as_sealed(line); }

/// A file that is open and, where the file system allows it, locked until the destructor.
class OpenFile {
 public:
  explicit OpenFile(const fs::path& file) : file_(file), descriptor_(open_file(file, O_RDWR | O_CREAT | O_APPEND)) {
    while (::flock(descriptor_.get(), LOCK_EX) != 0 && errno == EINTR) continue;
  }

  off_t size() const {
    struct stat status = {};
    EK_CHECK(::fstat(descriptor_.get(), &status) == 0, kIo, file_.string(), ": ", os_error_text(errno));
    return status.st_size;
  }
  std::string read(off_t begin, off_t end) const {
    std::string text(static_cast<size_t>(end - begin), '\0');
    const int64_t done = read_at(descriptor_.get(), begin, text);
    EK_CHECK(done == static_cast<int64_t>(text.size()), kIo, file_.string(),
             ": cannot be read: ", os_error_text(done < 0 ? errno : EIO));
    return text;
  }
  void write(std::string_view bytes) const {
    EK_CHECK(write_all(descriptor_.get(), bytes), kIo, file_.string(), ": cannot be written: ", os_error_text(errno));
  }
  void flush() const {
    EK_CHECK(::fsync(descriptor_.get()) == 0, kIo, file_.string(), ": cannot be flushed: ", os_error_text(errno));
  }

 private:
  const fs::path& file_;
  Descriptor descriptor_;
};

/// The end of a chain, from which the next line goes on.
struct End {
  int64_t lines = 0;  // number of the last whole line
  std::string head = first_before();
  std::string torn{};        // bytes after that line, without the line break before them
  bool needs_break = false;  // true: the file does not end in a line break
};

/// Returns the number in a whole line; 0 if it has none, because it was changed.
int64_t number_in(std::string_view line) try {
  const Json json = parse_json(line, "a line", kCheckpoint);
  return JsonView(json, "a line", kCheckpoint).at(kNumber).integer(1);
} catch (const Error&) {
  return 0;
}

/// Finds the last whole line in the end of a file. \return nothing if there is none
std::optional<End> end_in(std::string_view text) {
  End end{.needs_break = !text.empty() && text.back() != '\n'};
  size_t stop = text.size() - (text.ends_with('\n') ? 1 : 0);
  while (true) {
    const size_t before = stop == 0 ? std::string_view::npos : text.rfind('\n', stop - 1);
    const size_t start = before == std::string_view::npos ? 0 : before + 1;
    const auto line = text.substr(start, stop - start);
    if (is_whole(line)) {
      end.lines = number_in(line);
      end.head = sha256(line);
      if (stop + 1 < text.size()) end.torn = text.substr(stop + 1, text.size() - stop - 1 - (end.needs_break ? 0 : 1));
      return end;
    }
    if (before == std::string_view::npos) return std::nullopt;
    stop = before;
  }
}

End end_of(const OpenFile& file) {
  const off_t size = file.size();
  if (size == 0) return {};
  if (size > kEndBlock)
    if (auto end = end_in(file.read(size - kEndBlock, size))) return *end;
  const auto text = file.read(0, size);
  if (auto end = end_in(text)) return *end;
  const bool has_break = text.ends_with('\n');
  return {.torn = text.substr(0, text.size() - (has_break ? 1 : 0)), .needs_break = !has_break};
}

/// Returns the text of the next line with its line break, and goes on to it.
std::string next_line(End& end, const OrderedJson& object) {
  OrderedJson line{{kNumber, ++end.lines}};
  for (const auto& [key, value] : object.items()) line[key] = value;
  line[kBefore] = end.head;
  auto text = sealed(line);
  end.head = sha256(text);
  return text + "\n";
}

OrderedJson marker_of(const std::string& torn) {
  return {{kKind, kTorn}, {"time", utc_now_ms()}, {"bytes", torn.size()}, {"digest", sha256(torn)}};
}

/// The state of check_chain().
class Check {
 public:
  Check(const fs::path& file, const std::function<void(const ChainedLine&)>& on_line)
      : file_(file), on_line_(on_line) {}

  ChainCheck check() {
    const auto text = read_file(file_);
    const std::string_view view = text;
    size_t start = 0;
    for (size_t end; !found_.fault && (end = view.find('\n', start)) != std::string_view::npos; start = end + 1) {
      ++line_;
      take(view.substr(start, end - start));
    }
    if (found_.fault) return std::move(found_);
    found_.torn_end = static_cast<int64_t>(view.size() - start);
    if (torn_line_ > 0) refuse_torn();
    return std::move(found_);
  }

 private:
  void take(std::string_view line) {
    if (is_whole(line)) return take_whole(line);
    if (torn_line_ > 0)
      torn_ += '\n';
    else
      torn_line_ = line_;
    torn_ += line;
  }

  void take_whole(std::string_view line) try {
    const auto place = concat(file_.string(), ", line ", line_);
    const Json json = unsealed(line, place);
    const JsonView view(json, place, kCheckpoint);
    const auto number = view.at(kNumber).integer();
    const bool is_marker = view.string_or(kKind, "") == kTorn;
    if (torn_line_ > 0 && !(is_marker && marks(view))) return refuse_torn();
    if (torn_line_ == 0 && is_marker) return refuse("it marks a torn line, and there is none before it");
    if (number != found_.lines + 1)
      return refuse(concat("it has number ", number, " where ", found_.lines + 1,
                           " belongs: lines were removed, added or moved"));
    if (view.at(kBefore).string() != (found_.lines == 0 ? first_before() : found_.head)) return refuse(broken_link());
    found_.head = sha256(line);
    ++found_.lines;
    found_.torn += is_marker ? 1 : 0;
    torn_line_ = 0;
    torn_.clear();
    last_line_ = line_;
    if (on_line_) on_line_({view, found_.head});
  } catch (const Error& error) {
    if (error.kind() != kCheckpoint) throw;
    found_.fault = error;
  }

  bool marks(const JsonView& marker) const {
    return marker.integer_or("bytes", -1) == static_cast<int64_t>(torn_.size()) &&
           marker.string_or("digest", "") == sha256(torn_);
  }

  std::string broken_link() const {
    if (found_.lines == 0) return "it is not the first line of a chain: lines before it were removed";
    return concat("it does not go on from line ", last_line_, ": line ", last_line_,
                  " was changed later, or another line stood here");
  }
  void refuse(const std::string& why) {
    found_.fault = Error(kCheckpoint, concat(file_.string(), ", line ", line_, ": ", why));
  }
  void refuse_torn() {
    found_.fault =
        Error(kCheckpoint,
              concat(file_.string(), ", line ", torn_line_,
                     ": it is not whole, and the line after it does not mark it as torn: it was cut or changed"));
  }

  const fs::path& file_;
  const std::function<void(const ChainedLine&)>& on_line_;
  ChainCheck found_{.head = first_before()};
  int64_t line_ = 0, last_line_ = 0;  // of the file, from 1; the last whole one
  int64_t torn_line_ = 0;             // first line of the torn bytes; 0: none
  std::string torn_{};                // torn bytes that no marker has described yet
};

}  // namespace

std::string append_chained(const fs::path& file, const OrderedJson& object, Flush flush) {
  std::error_code error;
  const bool is_new = !fs::exists(file, error);
  const OpenFile open(file);
  auto end = end_of(open);
  std::string text = end.needs_break ? "\n" : "";
  if (!end.torn.empty()) text += next_line(end, marker_of(end.torn));
  text += next_line(end, object);
  open.write(text);
  if (flush == Flush::kLater) return end.head;
  open.flush();
  if (is_new) flush_folder(file.parent_path());
  return end.head;
}

ChainCheck check_chain(const fs::path& file, const std::function<void(const ChainedLine&)>& on_line) {
  return Check(file, on_line).check();
}

}  // namespace evenkeel
