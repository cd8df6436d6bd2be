/* Training and running chains of convolutions, each with batch norm and ReLU or without, on one core.

   Images are float[height][width][channels]. A stage keeps what its convolution gave ("raw"); its batch norm and ReLU,
   ReLU(raw * scale + shift), are done again wherever an image of it is needed, on the way into a small copy with a black
   border. So an image stays in the nearest caches, and a convolution is a product of matrices: a window of the copy, which
   is one run of memory for each row of the kernel, times the kernel. */

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#ifdef __AVX512F__
enum { LANES = 16, VECTORS = 4, ACCUMULATORS = 24 }; /* of 32 registers */
#else
enum { LANES = 8, VECTORS = 2, ACCUMULATORS = 12 }; /* of 16 */
#endif
enum { BLOCK = 64 };

typedef float lanes __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int bits __attribute__((vector_size(4 * LANES), aligned(4)));

/* As in native.py. Channels, but for those of an image whose gradient nobody wants, and filters are multiples of 16. */
struct stage {
    long height, width, channels; /* of an image that comes in */
    long filters, kernel_height, kernel_width, stride, padding;
    long relu, norm; /* whether they follow */
    double momentum, epsilon;
    const float *weight;              /* [filters][kernel_height][kernel_width][channels] */
    const float *bias, *gamma, *beta; /* [filters]; bias may be NULL, the others are there with a norm */
    float *running_mean, *running_variance;
    float *raw;                            /* [images][pixels][filters]; of one image, but in training */
    float *mean, *inverse, *scale, *shift; /* [filters]; mean is 0 where there is no norm */
    float *of_weight, *of_bias, *of_gamma, *of_beta; /* gradients, as weight, bias, gamma and beta */
};

static inline lanes load(const float *from) { return *(const lanes *)from; }
static inline void store(float *to, lanes value) { *(lanes *)to = value; }
/* 0 where the test is not above zero; NaN counts as above. */
static inline lanes where_above_zero(lanes test, lanes value) { return (lanes)((bits)value & ~(test <= 0)); }
static inline size_t least(size_t a, size_t b) { return a < b ? a : b; }

static inline void add(double *to, lanes value)
{
    for (int i = 0; i < LANES; i++) to[i] += value[i];
}

static size_t rows_of(const struct stage *s) { return (s->height + 2 * s->padding - s->kernel_height) / s->stride + 1; }
static size_t columns_of(const struct stage *s) { return (s->width + 2 * s->padding - s->kernel_width) / s->stride + 1; }
static size_t pixels_of(const struct stage *s) { return rows_of(s) * columns_of(s); }
static size_t outputs_of(const struct stage *s) { return pixels_of(s) * s->filters; }
static size_t inputs_of(const struct stage *s) { return s->height * s->width * s->channels; }
static size_t weights_of(const struct stage *s)
{
    return s->filters * s->kernel_height * s->kernel_width * s->channels;
}

/* ---- Products of matrices: of SIZE rows at a time and VECTORS * LANES columns, all sums in registers. ---- */

#define EACH(i, count) _Pragma("GCC unroll 24") for (int i = 0; i < (count); i++)
#define INLINE static inline __attribute__((always_inline))

/* A matrix whose rows are windows of an image: `runs` runs of `length` numbers, `step` from one to the next. */
struct windows {
    const float *image;
    const int *at; /* where each begins */
    size_t count, runs, length, step;
};

/* out[to[i]][...] = windows[i] @ kernel, for `size` of them; `width` is that of a row of the kernel. */
INLINE void window_tile(const struct windows *windows, size_t first, const float *kernel, size_t width, float *out,
                        const int *to, const int size, const int vectors)
{
    lanes sums[ACCUMULATORS];
    const float *row[ACCUMULATORS];
    EACH(i, size) row[i] = windows->image + windows->at[first + i];
    EACH(i, size * vectors) sums[i] = (lanes){0};
    for (size_t run = 0; run < windows->runs; run++) {
        for (size_t k = 0; k < windows->length; k++, kernel += width) {
            lanes of_kernel[VECTORS];
            EACH(v, vectors) of_kernel[v] = load(kernel + v * LANES);
            EACH(i, size) EACH(v, vectors) sums[i * vectors + v] += row[i][k] * of_kernel[v];
        }
        EACH(i, size) row[i] += windows->step;
    }
    EACH(i, size) EACH(v, vectors) store(out + to[first + i] + v * LANES, sums[i * vectors + v]);
}

/* out[k][...] += sum over windows: window[first + k] * gradient[window], for `size` of k within one run. */
INLINE void weight_tile(const struct windows *windows, size_t first, const float *gradient, size_t width, float *out,
                        const int size, const int vectors)
{
    lanes sums[ACCUMULATORS];
    EACH(i, size * vectors) sums[i] = (lanes){0};
    for (size_t at = 0; at < windows->count; at++, gradient += width) {
        const float *window = windows->image + windows->at[at] + first;
        lanes of_gradient[VECTORS];
        EACH(v, vectors) of_gradient[v] = load(gradient + v * LANES);
        EACH(i, size) EACH(v, vectors) sums[i * vectors + v] += window[i] * of_gradient[v];
    }
    out += first * width;
    EACH(i, size) EACH(v, vectors)
        store(out + i * width + v * LANES, load(out + i * width + v * LANES) + sums[i * vectors + v]);
}

/* Both for all rows and columns: as many columns at a time as there are, up to VECTORS, and rows shared out evenly. */
INLINE void tiles(const struct windows *windows, size_t rows, const float *right, size_t width, float *out, const int *to,
                  const int vectors)
{
    const size_t most = least(ACCUMULATORS / vectors, 12), count = (rows + most - 1) / most;
    for (size_t i = 0, first = 0, size; i < count; i++, first += size) {
        size = (rows - first) / (count - i);
#define CASE(n)                                                                                                       \
    case n:                                                                                                           \
        if (n * vectors > ACCUMULATORS) break;                                                                        \
        if (to) window_tile(windows, first, right, width, out, to, n, vectors);                                       \
        else weight_tile(windows, first, right, width, out, n, vectors);                                              \
        break;
        switch (size) { CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12) }
    }
}

INLINE void product(const struct windows *windows, size_t rows, const float *right, size_t width, float *out, const int *to)
{
    for (size_t column = 0; column < width;) {
        size_t left = (width - column) / LANES, vectors = left >= VECTORS ? VECTORS : left >= 2 ? 2 : 1;
        if (vectors == VECTORS) tiles(windows, rows, right + column, width, out + column, to, VECTORS);
        else if (vectors == 2) tiles(windows, rows, right + column, width, out + column, to, 2);
        else tiles(windows, rows, right + column, width, out + column, to, 1);
        column += vectors * LANES;
    }
}

static void convolve(const struct windows *windows, const float *kernel, size_t width, float *out, const int *to)
{
    product(windows, windows->count, kernel, width, out, to);
}

static void add_outer(const struct windows *windows, const float *gradient, size_t width, float *out)
{
    product(windows, windows->length, gradient, width, out, NULL);
}

/* ---- Images. ---- */

/* ReLU(x * scale + shift), or x where scale is NULL, into the middle of something wider. */
static void copy_image(const float *x, size_t height, size_t width, size_t channels, const float *scale,
                       const float *shift, int relu, float *to, size_t step)
{
    for (size_t row = 0; row < height; row++, x += width * channels, to += step) {
        if (!scale) {
            memcpy(to, x, width * channels * sizeof *x);
            continue;
        }
        for (size_t c = 0; c < channels; c += LANES) {
            lanes by = load(scale + c), plus = load(shift + c);
            for (size_t at = c; at < width * channels; at += channels) {
                lanes value = load(x + at) * by + plus;
                store(to + at, relu ? where_above_zero(value, value) : value);
            }
        }
    }
}

/* What comes into a stage, of one image, with a border. */
static void image_into(const struct stage *s, const struct stage *before, const float *x, float *padded)
{
    size_t step = (s->width + 2 * s->padding) * s->channels;
    copy_image(x, s->height, s->width, s->channels, before ? before->scale : NULL, before ? before->shift : NULL,
               before ? before->relu : 0, padded + s->padding * (step + s->channels), step);
}

static size_t padded_of(const struct stage *s)
{
    return (s->height + 2 * s->padding) * (s->width + 2 * s->padding) * s->channels;
}

/* The windows of a stage's filters, and where what they give goes. */
static struct windows windows_of(const struct stage *s, const float *padded, int *at, int *to)
{
    size_t step = (s->width + 2 * s->padding) * s->channels, columns = columns_of(s), count = pixels_of(s);
    for (size_t i = 0; i < count; i++) {
        at[i] = i / columns * s->stride * step + i % columns * s->stride * s->channels;
        to[i] = i * s->filters;
    }
    return (struct windows){padded, at, count, s->kernel_height, s->kernel_width * s->channels, step};
}

/* [filters][...] to [...][filters] */
static void turn(const float *from, size_t filters, size_t each, float *to)
{
    for (size_t i = 0; i < each; i++)
        for (size_t filter = 0; filter < filters; filter++) to[i * filters + filter] = from[filter * each + i];
}

/* ---- Batch norm. ---- */

/* Add the channels of an image, and the squares, as distances from `origin`; float within a block of pixels only. */
static void add_moments(const float *raw, size_t pixels, size_t channels, const float *origin, double *sum, double *squares)
{
    for (size_t first = 0; first < pixels; first += BLOCK)
        for (size_t c = 0; c < channels; c += LANES) {
            lanes from = load(origin + c), s = {0}, q = {0};
            for (size_t at = first * channels + c; at < least(first + BLOCK, pixels) * channels; at += channels) {
                lanes distance = load(raw + at) - from;
                s += distance, q += distance * distance;
            }
            add(sum + c, s), add(squares + c, q);
        }
}

/* The mean of the first image: distances from it are small, so that their squares lose nothing. */
static void guess_mean(struct stage *s, double *sum, double *squares)
{
    add_moments(s->raw, pixels_of(s), s->filters, s->raw, sum, squares);
    for (long c = 0; c < s->filters; c++) {
        s->mean[c] = s->raw[c] + sum[c] / pixels_of(s);
        sum[c] = squares[c] = 0;
    }
}

static void norm_of_batch(struct stage *s, size_t count, const double *sum, const double *squares)
{
    for (long c = 0; c < s->filters; c++) {
        double distance = sum[c] / count, variance = squares[c] / count - distance * distance;
        if (variance < 0) variance = 0; /* NaN is not */
        double bias = s->bias ? s->bias[c] : 0, mean = s->mean[c] + distance;
        s->mean[c] = mean;
        s->inverse[c] = 1 / sqrt(variance + s->epsilon);
        s->scale[c] = s->gamma[c] * s->inverse[c];
        s->shift[c] = s->beta[c] - s->mean[c] * s->scale[c];
        s->running_mean[c] += s->momentum * (mean + bias - s->running_mean[c]);
        s->running_variance[c] += s->momentum * (variance * count / (count - 1) - s->running_variance[c]);
    }
}

/* The scale and shift of a stage that does not depend on its batch. */
static void norm_as_known(struct stage *s, int norm)
{
    for (long c = 0; c < s->filters; c++) {
        double bias = s->bias ? s->bias[c] : 0;
        s->scale[c] = norm ? s->gamma[c] / sqrt(s->running_variance[c] + s->epsilon) : 1;
        s->shift[c] = norm ? s->beta[c] + (bias - s->running_mean[c]) * s->scale[c] : bias;
    }
}

/* Add, of an image, the gradients that ReLU lets through, and their products with the distance from the mean. */
static void add_products(const struct stage *s, const float *gradient, const float *raw, double *sum, double *products)
{
    size_t channels = s->filters, pixels = pixels_of(s);
    for (size_t first = 0; first < pixels; first += BLOCK)
        for (size_t c = 0; c < channels; c += LANES) {
            lanes scale = load(s->scale + c), shift = load(s->shift + c), mean = load(s->mean + c), u = {0}, p = {0};
            for (size_t at = first * channels + c; at < least(first + BLOCK, pixels) * channels; at += channels) {
                lanes value = load(raw + at), g = load(gradient + at);
                if (s->relu) g = where_above_zero(value * scale + shift, g);
                u += g, p += g * (value - mean);
            }
            add(sum + c, u), add(products + c, p);
        }
}

/* The gradient of what the convolution gave, of one image, from that of what the stage gave: into rows that are `step`
   apart. */
static void raw_gradient(const struct stage *s, const float *gradient, const float *raw, const float *constant,
                         const float *slope, float *to, size_t step)
{
    size_t channels = s->filters, along = columns_of(s) * channels;
    for (size_t row = 0; row < rows_of(s); row++, gradient += along, raw += along, to += step)
        for (size_t c = 0; c < channels; c += LANES) {
            lanes scale = load(s->scale + c), shift = load(s->shift + c), mean = load(s->mean + c);
            lanes less = load(constant + c), by = load(slope + c);
            for (size_t at = c; at < along; at += channels) {
                lanes value = load(raw + at), g = load(gradient + at);
                if (s->relu) g = where_above_zero(value * scale + shift, g);
                if (s->norm) g = scale * (g - less - (value - mean) * by);
                store(to + at, g);
            }
        }
}

/* ---- Chains. ---- */

/* The memory of one call, handed out piece by piece. */
static void *piece(char **desk, size_t bytes)
{
    void *found = *desk;
    *desk += (bytes + 63) / 64 * 64;
    return found;
}

/* One image through one stage. */
static void run(struct stage *s, const struct stage *before, const float *x, const struct windows *windows,
                const float *kernel, const int *to, float *raw)
{
    image_into(s, before, x, (float *)windows->image);
    convolve(windows, kernel, s->filters, raw, to);
}

/* What the last stage gives, float[images][pixels][filters]. In training a batch is normed by its own moments, and raw,
   mean, inverse, scale and shift are kept for the gradients. Returns 1 if memory is short, otherwise 0. */
int scarlet_forward(struct stage *stages, long count, const float *x, long images, float *y, int training)
{
    struct windows windows[count];
    float *kernels[count];
    int *to[count];
    size_t size = 0, most = 0;
    for (long i = 0; i < count; i++) {
        const struct stage *s = stages + i;
        size += (padded_of(s) + weights_of(s) + 2 * pixels_of(s)) * 4 + 4 * 64;
        if ((size_t)s->filters > most) most = s->filters;
    }
    char *memory = calloc(1, size + 2 * most * sizeof(double) + 2 * 64), *desk = memory;
    if (!memory) return 1;
    double *sum = piece(&desk, most * sizeof *sum), *squares = piece(&desk, most * sizeof *squares);
    for (long i = 0; i < count; i++) {
        struct stage *s = stages + i;
        float *padded = piece(&desk, padded_of(s) * sizeof *padded);
        int *at = piece(&desk, pixels_of(s) * sizeof *at);
        to[i] = piece(&desk, pixels_of(s) * sizeof **to);
        windows[i] = windows_of(s, padded, at, to[i]);
        kernels[i] = piece(&desk, weights_of(s) * sizeof **kernels);
        turn(s->weight, s->filters, weights_of(s) / s->filters, kernels[i]);
        if (!training || !s->norm) norm_as_known(s, s->norm);
    }
    const struct stage *last = stages + count - 1;
    if (training) {
        for (long i = 0; i < count; i++) {
            struct stage *s = stages + i;
            const struct stage *before = i ? s - 1 : NULL;
            memset(sum, 0, s->filters * sizeof *sum);
            memset(squares, 0, s->filters * sizeof *squares);
            for (long image = 0; image < images; image++) {
                float *raw = s->raw + image * outputs_of(s);
                run(s, before, (before ? before->raw : x) + image * inputs_of(s), windows + i, kernels[i], to[i], raw);
                if (s->norm && !image) guess_mean(s, sum, squares);
                if (s->norm) add_moments(raw, pixels_of(s), s->filters, s->mean, sum, squares);
            }
            if (s->norm) norm_of_batch(s, images * pixels_of(s), sum, squares);
        }
        copy_image(last->raw, images * rows_of(last), columns_of(last), last->filters, last->scale, last->shift,
                   last->relu, y, columns_of(last) * last->filters);
    } else {
        for (long image = 0; image < images; image++, x += inputs_of(stages), y += outputs_of(last)) {
            for (long i = 0; i < count; i++)
                run(stages + i, i ? stages + i - 1 : NULL, i ? stages[i - 1].raw : x, windows + i, kernels[i], to[i],
                    stages[i].raw);
            copy_image(last->raw, rows_of(last), columns_of(last), last->filters, last->scale, last->shift, last->relu,
                       y, columns_of(last) * last->filters);
        }
    }
    free(memory);
    return 0;
}

/* How a stage's gradients get back to its input: for each remainder of a pixel's row and column by the stride, those
   weights that touch such pixels, mirrored, over the gradient with a border. */
struct way_back {
    size_t above, left, step, size; /* the border, and a row and all of the gradient with it */
    struct windows *windows;        /* one for each pair of remainders */
    const float **kernels;
    int **to;
};

static size_t touching(size_t kernel, size_t remainder, size_t stride)
{
    return kernel > remainder ? (kernel - remainder - 1) / stride + 1 : 0;
}

static size_t border_after(size_t input, size_t padding, size_t stride, size_t output)
{
    size_t last = (input - 1 + padding) / stride;
    return last + 1 > output ? last + 1 - output : 0;
}

static struct way_back way_back_of(const struct stage *s)
{
    size_t above = touching(s->kernel_height, 0, s->stride) - 1, left = touching(s->kernel_width, 0, s->stride) - 1;
    size_t step = (left + columns_of(s) + border_after(s->width, s->padding, s->stride, columns_of(s))) * s->filters;
    size_t rows = above + rows_of(s) + border_after(s->height, s->padding, s->stride, rows_of(s));
    return (struct way_back){.above = above, .left = left, .step = step, .size = rows * step};
}

static void pave(struct way_back *way, const struct stage *s, const float *gradient, char **desk)
{
    size_t stride = s->stride, padding = s->padding, pairs = stride * stride;
    way->windows = piece(desk, pairs * sizeof *way->windows);
    way->kernels = piece(desk, pairs * sizeof *way->kernels);
    way->to = piece(desk, pairs * sizeof *way->to);
    int *at = piece(desk, s->height * s->width * sizeof *at), *to = piece(desk, s->height * s->width * sizeof *to);
    float *kernel = piece(desk, weights_of(s) * sizeof *kernel);
    for (size_t pair = 0; pair < pairs; pair++) {
        size_t a = pair / stride, b = pair % stride, count = 0;
        size_t down = touching(s->kernel_height, a, stride), along = touching(s->kernel_width, b, stride);
        for (size_t row = 0; row < (size_t)s->height; row++)
            for (size_t column = 0; column < (size_t)s->width; column++) {
                if ((row + padding) % stride != a || (column + padding) % stride != b) continue;
                size_t u = (row + padding) / stride + 1 + way->above - down;
                size_t v = (column + padding) / stride + 1 + way->left - along;
                at[count] = u * way->step + v * s->filters;
                to[count++] = (row * s->width + column) * s->channels;
            }
        way->windows[pair] = (struct windows){gradient, at, count, down, along * s->filters, way->step};
        way->to[pair] = to;
        way->kernels[pair] = kernel;
        for (size_t i = 0; i < down; i++)
            for (size_t j = 0; j < along; j++)
                for (size_t filter = 0; filter < (size_t)s->filters; filter++, kernel += s->channels) {
                    size_t row = a + stride * (down - 1 - i), column = b + stride * (along - 1 - j);
                    memcpy(kernel, s->weight + ((filter * s->kernel_height + row) * s->kernel_width + column) * s->channels,
                           s->channels * sizeof *kernel);
                }
        at += count, to += count;
    }
}

/* One stage's gradients, from the batch's `gradient` of what it gave, whose sums are known. Those of what came into it go
   to `earlier`, unless that is NULL, and their sums, if a stage is before it, to `sum` and `products`. */
static int back_through(const struct stage *s, const struct stage *before, const float *x, long images,
                        const float *gradient, float *earlier, double *sum, double *products)
{
    size_t filters = s->filters, pixels = pixels_of(s), outputs = outputs_of(s), pairs = s->stride * s->stride;
    struct way_back way = way_back_of(s);
    size_t numbers = padded_of(s) + 2 * weights_of(s) + 2 * pixels + outputs + way.size + 2 * s->height * s->width;
    size_t bytes = (numbers + 2 * filters) * 4;
    char *memory = calloc(1, bytes + pairs * (sizeof *way.windows + 2 * sizeof(void *)) + 16 * 64), *desk = memory;
    if (!memory) return 1;
    float *constant = piece(&desk, filters * sizeof *constant), *slope = piece(&desk, filters * sizeof *slope);
    for (size_t c = 0; c < filters; c++) {
        double count = images * (double)pixels;
        if (s->bias) s->of_bias[c] = s->norm ? 0 : sum[c]; /* a norm takes away what a bias adds */
        if (!s->norm) continue;
        s->of_beta[c] = sum[c];
        s->of_gamma[c] = products[c] * s->inverse[c];
        constant[c] = sum[c] / count;
        slope[c] = products[c] * s->inverse[c] * s->inverse[c] / count;
    }
    float *padded = piece(&desk, padded_of(s) * sizeof *padded);
    float *of_kernel = piece(&desk, weights_of(s) * sizeof *of_kernel);
    int *at = piece(&desk, pixels * sizeof *at), *to = piece(&desk, pixels * sizeof *to);
    float *of_raw = piece(&desk, outputs * sizeof *of_raw), *wide = piece(&desk, way.size * sizeof *wide);
    struct windows windows = windows_of(s, padded, at, to);
    if (earlier) pave(&way, s, wide, &desk);
    memset(sum, 0, s->channels * sizeof *sum);
    memset(products, 0, s->channels * sizeof *products);
    for (long image = 0; image < images; image++) {
        const float *input = (before ? before->raw : x) + image * inputs_of(s);
        image_into(s, before, input, padded);
        raw_gradient(s, gradient + image * outputs, s->raw + image * outputs, constant, slope, of_raw,
                     columns_of(s) * filters);
        for (long row = 0; row < s->kernel_height; row++) {
            struct windows of_row = windows;
            of_row.image += row * windows.step;
            add_outer(&of_row, of_raw, filters, of_kernel + row * windows.length * filters);
        }
        if (!earlier) continue;
        float *back = earlier + image * inputs_of(s);
        copy_image(of_raw, rows_of(s), columns_of(s), filters, NULL, NULL, 0,
                   wide + way.above * way.step + way.left * filters, way.step);
        for (size_t pair = 0; pair < pairs; pair++)
            convolve(way.windows + pair, way.kernels[pair], s->channels, back, way.to[pair]);
        if (before) add_products(before, back, input, sum, products);
    }
    turn(of_kernel, weights_of(s) / filters, filters, s->of_weight);
    free(memory);
    return 0;
}

/* All gradients, from that of what `scarlet_forward` gave in training; that of x unless `of_x` is NULL. Returns 1 if
   memory is short, otherwise 0. */
int scarlet_backward(const struct stage *stages, long count, const float *x, long images, const float *gradient,
                     float *of_x)
{
    size_t most = stages->channels;
    for (long i = 0; i < count; i++)
        if ((size_t)stages[i].filters > most) most = stages[i].filters;
    double *sums = calloc(2 * most, sizeof *sums);
    if (!sums) return 1;
    const struct stage *last = stages + count - 1;
    for (long image = 0; image < images; image++)
        add_products(last, gradient + image * outputs_of(last), last->raw + image * outputs_of(last), sums, sums + most);
    float *held = NULL;
    int failed = 0;
    for (long i = count - 1; i >= 0 && !failed; i--) {
        const struct stage *s = stages + i;
        float *between = i ? malloc(images * inputs_of(s) * sizeof *between) : NULL;
        failed = (i && !between) ||
                 back_through(s, i ? s - 1 : NULL, x, images, gradient, i ? between : of_x, sums, sums + most);
        free(held);
        gradient = held = between;
    }
    free(held);
    free(sums);
    return failed;
}
