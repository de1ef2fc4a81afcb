#include "flower/format/lines.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/plain/error.h"
#include "base/plain/os_error.h"
#include "base/plain/text.h"

namespace evenkeel::flower {
namespace {

constexpr size_t kMostLine = size_t{64} << 20;
constexpr size_t kMostMemories = 4;  // shared memories that a peer may send before their lines
constexpr int kTick_ms = 200;

/// Waits until the socket is readable or the peer has closed it. \return false if asked to stop
bool wait_readable(int descriptor, const StopWaiting& stop) {
  for (;;) {
    pollfd event{descriptor, POLLIN, 0};
    if (::poll(&event, 1, kTick_ms) > 0) return true;
    if (stop && stop()) return false;
  }
}

sockaddr_un address_of(const std::filesystem::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  EK_CHECK(path.string().size() < sizeof address.sun_path, kConfig, path.string(), ": a socket's path is shorter than ",
           sizeof address.sun_path, " bytes");
  std::strcpy(address.sun_path, path.c_str());
  return address;
}

/// Binds to a path, for the owner alone. \return 0, or errno
int bind_to(int descriptor, const sockaddr_un& address) {
  const auto mask = ::umask(0177);
  const bool bound = ::bind(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  const int why = bound ? 0 : errno;
  ::umask(mask);
  return why;
}

/// Removes a socket that no process holds, as a killed one leaves it behind. The probe is of another type, so that it
/// never becomes a connection of a living listener. \return true if it is removed
bool remove_abandoned(const sockaddr_un& address) {
  struct stat file {};
  if (::lstat(address.sun_path, &file) != 0 || !S_ISSOCK(file.st_mode)) return false;
  const int probe = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (probe < 0) return false;
  const bool refused =
      ::connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 && errno == ECONNREFUSED;
  ::close(probe);
  return refused && ::unlink(address.sun_path) == 0;
}

}  // namespace

std::shared_ptr<SharedMemory> SharedMemory::make(size_t bytes) {
  const int descriptor = ::memfd_create("evenkeel", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  EK_CHECK(descriptor >= 0, kIo, "shared memory: ", os_error_text(errno));
  EK_CHECK(::ftruncate(descriptor, static_cast<off_t>(bytes)) == 0, kIo, "shared memory of ", bytes,
           " bytes: ", os_error_text(errno));
  void* data = bytes == 0 ? nullptr : ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  EK_CHECK(data != MAP_FAILED, kIo, "shared memory of ", bytes, " bytes: ", os_error_text(errno));
  return std::shared_ptr<SharedMemory>(new SharedMemory(descriptor, static_cast<std::byte*>(data), bytes));
}

std::shared_ptr<SharedMemory> SharedMemory::of(int descriptor, size_t bytes) {
  std::shared_ptr<SharedMemory> memory(new SharedMemory(descriptor, nullptr, 0));
  struct stat file {};
  const int seals = ::fcntl(descriptor, F_GET_SEALS);
  EK_CHECK(seals >= 0 && (seals & F_SEAL_SHRINK) != 0, kData, "the arrays' memory is not sealed against shrinking");
  EK_CHECK(::fstat(descriptor, &file) == 0 && static_cast<size_t>(file.st_size) >= bytes, kData,
           "the arrays' memory has ", file.st_size, " bytes, the line says ", bytes);
  void* data = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, descriptor, 0);
  EK_CHECK(data != MAP_FAILED, kIo, "the arrays' memory of ", bytes, " bytes: ", os_error_text(errno));
  memory->data_ = static_cast<std::byte*>(data);
  memory->size_ = bytes;
  return memory;
}

SharedMemory::~SharedMemory() {
  if (data_) ::munmap(data_, size_);
  ::close(descriptor_);
}

/// Unmaps and seals the memory. (Sealing fails while a writable mapping exists.)
void SharedMemory::seal() {
  if (data_) ::munmap(std::exchange(data_, nullptr), size_);
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
  EK_CHECK(::fcntl(descriptor_, F_ADD_SEALS, kSeals) == 0, kIo, "shared memory: ", os_error_text(errno));
}

LineSocket::~LineSocket() {
  for (const int memory : memories_) ::close(memory);
  if (descriptor_ >= 0) ::close(descriptor_);
}

LineSocket::LineSocket(LineSocket&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      text_(std::move(other.text_)),
      memories_(std::exchange(other.memories_, {})) {}

void LineSocket::send(OrderedJson line, const std::shared_ptr<SharedMemory>& memory) {
  if (memory) line["bytes"] = memory->size();
  const auto text = line.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  for (size_t done = 0; done < text.size();) {
    iovec piece{const_cast<char*>(text.data() + done), text.size() - done};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    if (memory && done == 0) {
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      auto* rights = CMSG_FIRSTHDR(&message);
      *rights = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
      const int descriptor = memory->descriptor();
      std::memcpy(CMSG_DATA(rights), &descriptor, sizeof descriptor);
    }
    const auto sent = ::sendmsg(descriptor_, &message, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    EK_CHECK(sent > 0, kIo, "the other side of the socket is gone: ", os_error_text(errno));
    done += static_cast<size_t>(sent);
  }
}

std::optional<Line> LineSocket::receive(const StopWaiting& stop) {
  size_t end = 0;
  for (size_t looked = 0; (end = text_.find('\n', looked)) == text_.npos;) {
    looked = text_.size();
    EK_CHECK(looked <= kMostLine, kData, "a line of more than ", kMostLine, " bytes");
    if (!fill(stop)) return std::nullopt;
  }
  Line line{.json = parse_json(std::string_view(text_).substr(0, end), "a line", kData, {.bytes = kMostLine})};
  text_.erase(0, end + 1);
  const auto bytes = JsonView(line.json, "a line", kData).object().integer_or("bytes", 0, 0);
  if (bytes == 0) return line;
  EK_CHECK(!memories_.empty(), kData, "a line says that ", bytes, " bytes of arrays come with it, and none do");
  const int memory = memories_.front();
  memories_.erase(memories_.begin());
  line.memory = SharedMemory::of(memory, static_cast<size_t>(bytes));
  return line;
}

/// Reads available bytes. \return false if no more come
bool LineSocket::fill(const StopWaiting& stop) {
  if (!wait_readable(descriptor_, stop)) return false;
  char buffer[64 << 10];
  alignas(cmsghdr) char control[CMSG_SPACE(kMostMemories * sizeof(int))];
  iovec piece{buffer, sizeof buffer};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const auto got = ::recvmsg(descriptor_, &message, MSG_CMSG_CLOEXEC);
  for (auto* rights = CMSG_FIRSTHDR(&message); rights; rights = CMSG_NXTHDR(&message, rights)) {
    if (rights->cmsg_level != SOL_SOCKET || rights->cmsg_type != SCM_RIGHTS) continue;
    std::vector<int> descriptors((rights->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    std::memcpy(descriptors.data(), CMSG_DATA(rights), descriptors.size() * sizeof(int));
    memories_.insert(memories_.end(), descriptors.begin(), descriptors.end());
  }
  EK_CHECK(memories_.size() <= kMostMemories, kData, "more than ", kMostMemories, " memories without their lines");
  if (got <= 0) return got < 0 && errno == EINTR;
  text_.append(buffer, static_cast<size_t>(got));
  return true;
}

LineListener::LineListener(std::filesystem::path path) : path_(std::move(path)) {
  const auto address = address_of(path_);
  descriptor_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EK_CHECK(descriptor_ >= 0, kIo, path_.string(), ": ", os_error_text(errno));
  int why = bind_to(descriptor_, address);
  if (why == EADDRINUSE && remove_abandoned(address)) why = bind_to(descriptor_, address);
  if (why != 0) ::close(descriptor_);
  EK_CHECK(why == 0, kIo, path_.string(), ": ", os_error_text(why));
  ::listen(descriptor_, 16);
}

LineListener::~LineListener() {
  ::close(descriptor_);
  ::unlink(path_.c_str());
}

std::optional<LineSocket> LineListener::accept(const StopWaiting& stop) {
  while (wait_readable(descriptor_, stop)) {
    const int connection = ::accept4(descriptor_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection >= 0) return LineSocket(connection);
  }
  return std::nullopt;
}

}  // namespace evenkeel::flower
