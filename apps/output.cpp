#include "apps/output.h"
#include "base/plain/descriptor.h"
#include "base/plain/os_error.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <iostream>
#include <string>

namespace evenkeel::apps {
namespace {

/// Opens closed standard descriptors, because open() would return the lowest free one for another file. stdout is
/// opened for reading, so that writing to it fails.
void reserve_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(descriptor, F_GETFD) < 0) (void)::open("/dev/null", descriptor == STDERR_FILENO ? O_WRONLY : O_RDONLY);
}

}  // namespace

Output::Output() {
  reserve_descriptors();
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  if (::isatty(STDOUT_FILENO) != 1) setp(buffer_.data(), buffer_.data() + buffer_.size());
  before_ = std::cout.rdbuf(this);
  std::cout.exceptions(std::ios::badbit);  // lets operator<< pass on the exceptions of write_out()
  std::cerr.tie(nullptr);                  // an error message must not flush std::cout, which may fail
}

Output::~Output() {
  std::cout.exceptions(std::ios::goodbit);
  std::cout.rdbuf(before_);
}

int Output::finish(int code) {
  try {
    if (error_ == 0) std::cout.flush();
  } catch (const OutputLost&) {  // finish() reports error_
  }
  if (!failed() || code != 0) return code;
  std::cerr << "evenkeel: [io] standard output: cannot be written: " << os_error_text(error_) << '\n';
  return 1;
}

bool Output::failed() const { return error_ != 0 && error_ != EPIPE; }

bool Output::reader_gone() const {
  pollfd out{.fd = STDOUT_FILENO, .events = 0, .revents = 0};
  return error_ == EPIPE || (::poll(&out, 1, 0) == 1 && (out.revents & POLLERR) != 0);
}

Output::int_type Output::overflow(int_type next) {
  write_out();
  const char one = traits_type::to_char_type(next);
  if (!traits_type::eq_int_type(next, traits_type::eof())) xsputn(&one, 1);
  return traits_type::not_eof(next);
}

std::streamsize Output::xsputn(const char* text, std::streamsize size) {
  if (pbase() != nullptr) return std::streambuf::xsputn(text, size);
  write(std::string_view(text, static_cast<size_t>(size)));
  return size;
}

int Output::sync() {
  write_out();
  return 0;
}

/// Writes the buffer. After a failure nothing is written any more.
void Output::write_out() {
  const std::string_view text(pbase(), static_cast<size_t>(pptr() - pbase()));
  if (pbase() != nullptr) setp(buffer_.data(), buffer_.data() + buffer_.size());
  write(text);
}

void Output::write(std::string_view text) {
  if (error_ == 0 && !write_all(STDOUT_FILENO, text)) error_ = errno;
  if (error_ != 0) throw OutputLost();
}

bool output_failed() {
  const auto* output = dynamic_cast<const Output*>(std::cout.rdbuf());
  return output && output->failed();
}

bool reader_gone() {
  const auto* output = dynamic_cast<const Output*>(std::cout.rdbuf());
  return output && output->reader_gone();
}

void print(const char* format, ...) {
  std::va_list values, again;
  va_start(values, format);
  va_copy(again, values);
  std::string text(static_cast<size_t>(std::vsnprintf(nullptr, 0, format, values)), '\0');
  std::vsnprintf(text.data(), text.size() + 1, format, again);
  va_end(again);
  va_end(values);
  std::cout << text;
}

}  // namespace evenkeel::apps
